"""The page cache, asked about real files; where the kernel does not tell, it must say so."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest

from probes import page_cache
from probes.page_cache import CacheReading, cached_fraction, classify, drop, process_read_bytes, read_cache
from probes.records import CacheState

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the calls are Linux's")

PAGES = 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of whole pages on a real disk, all of it just written and so in the cache."""
    path = tmp_path / "weights.bin"
    path.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    return path


def dropped(path: Path) -> Path:
    """The same file out of the cache, or a skip where the file system keeps everything in memory."""
    assert drop([path])
    if cached_fraction([path]) != 0.0:
        pytest.skip("this file system does not let go of pages")
    return path


@pytest.mark.parametrize(
    ("fraction", "state"),
    [
        (None, "unknown"),
        (0.0, "cold"),
        (0.0499, "cold"),
        (0.05, "partial"),
        (0.5, "partial"),
        (0.95, "partial"),
        (0.951, "warm"),
        (1.0, "warm"),
    ],
)
def test_the_label_of_a_share(fraction: float | None, state: CacheState) -> None:
    assert classify(fraction) == state
    assert CacheReading(fraction=fraction, reason=None).state == state


@pytest.fixture(params=["cachestat", "mincore"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Both ways of asking give the same answers."""
    if request.param == "mincore":
        monkeypatch.setattr(page_cache, "_ask_cachestat", lambda _: None)
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        if page_cache._ask_cachestat(descriptor) is None:
            pytest.skip("this kernel has no cachestat")
    finally:
        os.close(descriptor)


@on_linux
@pytest.mark.usefixtures("way")
class TestShare:
    def test_a_file_just_written_is_warm(self, file: Path) -> None:
        assert read_cache([file]) == CacheReading(fraction=1.0, reason=None)

    def test_dropping_makes_it_cold(self, file: Path) -> None:
        assert read_cache([dropped(file)]).state == "cold"

    def test_asking_brings_nothing_in(self, file: Path) -> None:
        dropped(file)
        assert cached_fraction([file]) == 0.0
        assert cached_fraction([file]) == 0.0

    def test_two_files_count_by_their_bytes(self, file: Path, tmp_path: Path) -> None:
        dropped(file)
        other = tmp_path / "more.bin"
        other.write_bytes(bytes(3 * PAGES * mmap.PAGESIZE))
        assert cached_fraction([file, other]) == 0.75

    def test_windows_of_a_large_file_add_up(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(page_cache, "_WINDOW_BYTES", 7 * mmap.PAGESIZE)
        assert cached_fraction([file]) == 1.0

    def test_a_last_page_that_is_not_full(self, file: Path) -> None:
        with file.open("ab") as end:
            end.write(b"tail")
        assert cached_fraction([file]) == 1.0

    def test_one_page_read_is_partial(self, file: Path) -> None:
        dropped(file)
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
            os.pread(descriptor, 1, 5 * mmap.PAGESIZE)
        finally:
            os.close(descriptor)
        fraction = cached_fraction([file])
        assert fraction is not None
        assert 0 < fraction < 1


class TestUnknown:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        reading = read_cache([tmp_path / "gone"])
        assert reading.fraction is None
        assert "No such file" in str(reading.reason)
        assert not drop([tmp_path / "gone"])

    def test_nothing_to_ask_about(self, tmp_path: Path) -> None:
        empty = tmp_path / "empty"
        empty.touch()
        assert read_cache([empty]).reason == "there are no bytes to ask about"
        assert read_cache([]).state == "unknown"

    @on_linux
    def test_a_file_of_somebody_else(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(page_cache, "_ask_cachestat", lambda _: None)
        somebody = file.stat().st_uid + 1
        monkeypatch.setattr(os, "geteuid", lambda: somebody)
        monkeypatch.setattr(os, "access", lambda *_: False)
        assert read_cache([file]) == CacheReading(
            fraction=None, reason="the kernel tells only those who may write to the file"
        )

    def test_a_system_without_the_calls(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
        assert read_cache([file]).reason == "Windows does not tell what is in its file cache"
        assert not drop([file])


class TestReadBytes:
    @on_linux
    def test_reading_a_cold_file_is_counted(self, file: Path) -> None:
        before = process_read_bytes()
        if before is None:
            pytest.skip("this kernel keeps no such count")
        dropped(file)
        file.read_bytes()
        after = process_read_bytes()
        assert after is not None
        assert after - before >= PAGES * mmap.PAGESIZE

    def test_of_another_process(self, tmp_path: Path) -> None:
        (tmp_path / "proc/7").mkdir(parents=True)
        (tmp_path / "proc/7/io").write_text("rchar: 10\nread_bytes: 4096\nwrite_bytes: 0\n")
        assert process_read_bytes(7, tmp_path) == 4096

    def test_gone_or_without_the_count(self, tmp_path: Path) -> None:
        assert process_read_bytes(8, tmp_path) is None
        (tmp_path / "proc/9").mkdir(parents=True)
        (tmp_path / "proc/9/io").write_text("rchar: 10\n")
        assert process_read_bytes(9, tmp_path) is None
