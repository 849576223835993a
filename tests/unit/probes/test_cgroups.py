"""Control groups of both versions, simulated below a folder of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes import cgroups
from probes.cgroups import Throttling


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


VERSION_2 = {
    "proc/self/cgroup": "0::/user.slice/job\n",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
}
VERSION_1 = {
    "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n",
    "proc/self/mountinfo": (
        "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    ),
}


def test_version_2_walks_up_from_the_own_group(tmp_path: Path) -> None:
    top = write(tmp_path, VERSION_2) / "sys/fs/cgroup"
    assert cgroups.groups("cpu", tmp_path) == (top / "user.slice/job", top / "user.slice", top)
    assert cgroups.groups("memory", tmp_path) == cgroups.groups("cpu", tmp_path)


def test_version_1_knows_that_a_container_mounts_its_own_group(tmp_path: Path) -> None:
    write(tmp_path, VERSION_1)
    assert cgroups.groups("cpu", tmp_path) == (tmp_path / "sys/fs/cgroup/cpu,cpuacct",)
    assert cgroups.groups("memory", tmp_path) == (tmp_path / "sys/fs/cgroup/memory",)


@pytest.mark.parametrize("group", ["/../elsewhere", "/a/../../b"])
def test_a_group_outside_of_the_mount_leaves_the_mount_point(tmp_path: Path, group: str) -> None:
    write(tmp_path, {**VERSION_2, "proc/self/cgroup": f"0::{group}\n"})
    assert cgroups.groups("cpu", tmp_path) == (tmp_path / "sys/fs/cgroup",)


@pytest.mark.parametrize("mountinfo", ["", "garbage\n", "1 2 - cgroup2\n", "1 2 3 4 5 - ext4 /dev/sda rw\n"])
def test_without_control_groups_nothing_is_known(tmp_path: Path, mountinfo: str) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountinfo})
    folders = cgroups.groups("cpu", tmp_path)
    assert folders == ()
    assert cgroups.cpu_quota(folders) is None
    assert cgroups.memory_limit_bytes(folders) is None
    assert cgroups.memory_headroom_bytes(folders) is None
    assert cgroups.throttling(folders) == ()


def test_the_tightest_quota_of_all_levels_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            **VERSION_2,
            "sys/fs/cgroup/user.slice/job/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/cpu.max": "150000 100000\n",
        },
    )
    assert cgroups.cpu_quota(cgroups.groups("cpu", tmp_path)) == 1.5


@pytest.mark.parametrize(("quota", "expected"), [("-1\n", None), ("250000\n", 2.5)])
def test_quota_of_version_1(tmp_path: Path, quota: str, expected: float | None) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct"
    write(
        tmp_path,
        {**VERSION_1, f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000\n"},
    )
    assert cgroups.cpu_quota(cgroups.groups("cpu", tmp_path)) == expected


def test_memory_of_version_2_counts_file_pages_as_free(tmp_path: Path) -> None:
    job = "sys/fs/cgroup/user.slice/job"
    write(
        tmp_path,
        {
            **VERSION_2,
            f"{job}/memory.max": "1000000\n",
            f"{job}/memory.current": "700000\n",
            f"{job}/memory.stat": "anon 200000\ninactive_file 300000\nactive_file 100000\n",
            "sys/fs/cgroup/user.slice/memory.max": "max\n",
        },
    )
    folders = cgroups.groups("memory", tmp_path)
    assert cgroups.memory_limit_bytes(folders) == 1_000_000
    # 1,000,000 - (700,000 - 300,000 - 100,000)
    assert cgroups.memory_headroom_bytes(folders) == 700_000


def test_memory_of_version_1_and_its_word_for_no_limit(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory"
    write(
        tmp_path,
        {
            **VERSION_1,
            f"{folder}/memory.limit_in_bytes": "500000\n",
            f"{folder}/memory.usage_in_bytes": "600000\n",
            f"{folder}/memory.stat": "inactive_file 5\ntotal_inactive_file 50000\ntotal_active_file 0\n",
        },
    )
    folders = cgroups.groups("memory", tmp_path)
    assert cgroups.memory_limit_bytes(folders) == 500_000
    assert cgroups.memory_headroom_bytes(folders) == 0
    (tmp_path / folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert cgroups.memory_limit_bytes(folders) is None
    assert cgroups.memory_headroom_bytes(folders) is None


def test_throttling_of_each_level(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            **VERSION_2,
            "sys/fs/cgroup/user.slice/job/cpu.stat": "usage_usec 9\nnr_periods 40\nnr_throttled 10\n",
            "sys/fs/cgroup/user.slice/cpu.stat": "usage_usec 9\n",
            "sys/fs/cgroup/cpu.stat": "nr_periods 7\n",
        },
    )
    assert cgroups.throttling(cgroups.groups("cpu", tmp_path)) == (
        Throttling(periods=40, throttled=10),
        Throttling(periods=7, throttled=0),
    )


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({"job/memory.events": "low 0\nmax 7\noom 3\noom_kill 2\n", "memory.events": "oom_kill 9\n"}, 2),
        ({"job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"}, 1),
        ({"memory.events": "oom_kill 9\n"}, 9),
        ({"job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}, None),  # kernels before 4.13
        ({}, None),
    ],
    ids=["version 2", "version 1", "a level above", "not counted", "no control groups"],
)
def test_kills_for_lack_of_memory_are_those_of_the_innermost_group(
    tmp_path: Path, files: dict[str, str], kills: int | None
) -> None:
    write(tmp_path, files)
    assert cgroups.oom_kills((tmp_path / "job", tmp_path)) == kills
