"""A replaced file is whole, has the permissions asked for, and nothing is left beside it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from probes.atomic_file import remove_leftovers, replace_file


def test_the_new_content_takes_the_place_of_the_earlier(tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    target.write_bytes(b"earlier and longer")
    replace_file(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(sys.platform == "win32", reason="no permission bits on Windows")
@pytest.mark.parametrize(("mode", "expected"), [(None, 0o600), (0o644, 0o644)])
def test_permissions(tmp_path: Path, mode: int | None, expected: int) -> None:
    replace_file(tmp_path / "file", b"", mode=mode)
    assert (tmp_path / "file").stat().st_mode & 0o777 == expected


def test_a_name_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 251 + ".csv")
    replace_file(target, b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.chmod", "pathlib.Path.replace"])
def test_what_interrupts_it_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, problem: BaseException
) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"earlier")

    def fail(*_: object) -> None:
        raise problem

    with monkeypatch.context() as patched:
        patched.setattr(call, fail)
        with pytest.raises(type(problem)):
            replace_file(target, b"new", mode=0o644)
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() == b"earlier"


def test_what_a_killed_program_left_is_removed_later(tmp_path: Path) -> None:
    left, fresh, run = (tmp_path / name for name in (".llmphase-old.tmp", ".llmphase-new.tmp", "run.json"))
    for path in (left, fresh, run):
        path.touch()
    hour_ago = time.time() - 3600
    os.utime(left, (hour_ago, hour_ago))
    os.utime(run, (hour_ago, hour_ago))
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".llmphase-new.tmp", "run.json"]
    remove_leftovers(tmp_path / "nowhere")
