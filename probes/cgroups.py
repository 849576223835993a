"""What Linux control groups grant this process: CPU quota, memory limit, throttling; versions 1 and 2.

A limit may be set at any level between the process's own group and the top of the mounted tree, so each
question is asked of all of them. On systems without control groups every answer is None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

_UNLIMITED_BYTES = 2**60
"""Version 1 writes "no limit" as the largest number of whole pages."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """Counters of the CPU quota since the group was made."""

    periods: int
    """Enforcement periods in which the group ran."""
    throttled: int
    """Those of them in which it was stopped."""


def groups(controller: str, root: Path = Path("/")) -> tuple[Path, ...]:
    """Folders that may limit this process, innermost first, for `cpu` or `memory`.

    `root` is where the file system begins; tests put a simulated one there.
    """
    memberships = list(_memberships(root))
    folders: list[Path] = []
    for mounted, mount_root, mount_point in _mounts(root):
        for joined, group in memberships:
            is_version_2 = not mounted and not joined
            if is_version_2 or (controller in mounted and controller in joined):
                folders += _levels(root, mount_root, mount_point, group)
    return tuple(dict.fromkeys(folders))


def cpu_quota(folders: Iterable[Path]) -> float | None:
    """The tightest quota in CPUs, None without one. `folders` come from `groups("cpu")`."""
    return min((quota for folder in folders if (quota := _cpu_quota(folder)) is not None), default=None)


def memory_limit_bytes(folders: Iterable[Path]) -> int | None:
    """The tightest memory limit, None without one. `folders` come from `groups("memory")`."""
    return min((limit for folder in folders if (limit := _memory_limit(folder)) is not None), default=None)


def memory_headroom_bytes(folders: Iterable[Path]) -> int | None:
    """What may still be allocated before a limit is met; file pages of the group count as free, as the
    kernel gives them up first. None without a limit.
    """
    headrooms = []
    for folder in folders:
        limit = _memory_limit(folder)
        used = _first_number(folder, "memory.current", "memory.usage_in_bytes")
        if limit is not None and used is not None:
            headrooms.append(max(0, limit - max(0, used - _file_pages_bytes(folder))))
    return min(headrooms, default=None)


def oom_kills(folders: Iterable[Path]) -> int | None:
    """How many processes of the innermost group that counts them were killed for lack of memory, by its own
    limit, another level's or the whole system's. None where nothing counts. `folders` come from
    `groups("memory")`.
    """
    counts = (
        _table(folder / name).get("oom_kill")
        for folder in folders
        for name in ("memory.events", "memory.oom_control")
    )
    return next((count for count in counts if count is not None), None)


def throttling(folders: Iterable[Path]) -> tuple[Throttling, ...]:
    """Counters of each level that keeps them, innermost first; empty where none does."""
    found = []
    for folder in folders:
        counters = _table(folder / "cpu.stat")
        if "nr_periods" in counters:
            found.append(
                Throttling(periods=counters["nr_periods"], throttled=counters.get("nr_throttled", 0))
            )
    return tuple(found)


def _memberships(root: Path) -> Iterator[tuple[frozenset[str], str]]:
    """Controllers (none: version 2) and group path of each line of /proc/self/cgroup."""
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        yield frozenset(name for name in names.split(",") if name), group


def _mounts(root: Path) -> Iterator[tuple[frozenset[str], str, str]]:
    """Controllers (none: version 2), the group that is mounted, and where, from /proc/self/mountinfo."""
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, source = line.partition(" - ")
        fields, source_fields = mount.split(), source.split()
        if len(fields) < 5 or len(source_fields) < 3:
            continue
        if source_fields[0] == "cgroup2":
            yield frozenset(), fields[3], fields[4]
        elif source_fields[0] == "cgroup":
            yield frozenset(source_fields[2].split(",")), fields[3], fields[4]


def _levels(root: Path, mount_root: str, mount_point: str, group: str) -> list[Path]:
    """Folders from the group up to the mount point."""
    top = root / mount_point.lstrip("/")
    # In a container the mounted part of the tree may begin at the group itself, or the group may lie
    # outside of what is mounted (`/../x`): the mount point is then all there is to see.
    below = group.removeprefix(mount_root) if group.startswith(mount_root) else ""
    parts = [part for part in below.split("/") if part]
    if ".." in parts:
        parts = []
    return [top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _cpu_quota(folder: Path) -> float | None:
    fields = _text(folder / "cpu.max").split() or [
        _text(folder / "cpu.cfs_quota_us").strip(),
        _text(folder / "cpu.cfs_period_us").strip(),
    ]
    if len(fields) != 2 or not all(field.isdecimal() for field in fields) or int(fields[1]) == 0:
        return None  # "max" in version 2, -1 in version 1, or no such file
    return int(fields[0]) / int(fields[1])


def _memory_limit(folder: Path) -> int | None:
    limit = _first_number(folder, "memory.max", "memory.limit_in_bytes")
    return limit if limit is not None and limit < _UNLIMITED_BYTES else None


def _file_pages_bytes(folder: Path) -> int:
    counters = _table(folder / "memory.stat")
    return sum(
        counters.get(f"total_{name}", counters.get(name, 0)) for name in ("inactive_file", "active_file")
    )


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    pairs = (line.split() for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _first_number(folder: Path, *names: str) -> int | None:
    """The number in the first of the files that holds one."""
    texts = (_text(folder / name).strip() for name in names)
    return next((int(text) for text in texts if text.isdecimal()), None)


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _text(path: Path) -> str:
    """The content of a file of the kernel; empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
