"""The folder of model files that were made for comparison: kept between runs, bounded, shared by programs.

A file has its name only once it is whole. Three rules keep programs that run at once out of each other's
way: who makes files holds the folder's lock, so that no two make the same one and half files of dead programs
are known by the lock being free; who uses a file holds a lock on it until the process ends; who makes room
takes only files that nobody uses. Windows needs none of these locks: it lets nobody remove an open file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from probes.ceiling_cache import CACHE_FOLDER_VARIABLE, cache_folder
from probes.errors import LlmphaseError, UnmeasurableError, UsageError
from probes.gguf_header import read_model_facts
from probes.records import ModelFacts
from probes.text import clean_text, show_path

CACHE_SIZE_VARIABLE = "LLMPHASE_QUANT_CACHE_SIZE"
DEFAULT_SIZE = "32G"
_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?([KMGT])(?:i?B)?", re.IGNORECASE)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_GIB = 2**30
_SPARE_BYTES = 256 * 2**20
"""Left free on the disk, for the run itself and for everybody else."""
_HALF = ".half"
_WHOLE = ".gguf"
_LOCK_NAME = "making.lock"
_POLL_S = 0.5
_IN_USE: list[BinaryIO] = []
"""Open files whose locks say that this process uses them."""


@dataclasses.dataclass(frozen=True, slots=True)
class VariantCache:
    """The folder and its bound. The folder is made when the first file is."""

    folder: Path
    limit_bytes: int

    @classmethod
    def open(cls) -> VariantCache:
        """As the environment says. Raises UsageError for a bound that is no size."""
        text = os.environ.get(CACHE_SIZE_VARIABLE) or DEFAULT_SIZE
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"{CACHE_SIZE_VARIABLE}={clean_text(text, 40)} is no size; give one such as {DEFAULT_SIZE}",
                reason="cache-size",
            )
        return cls(cache_folder("quantized"), round(float(match[1]) * _UNITS[match[2].upper()]))

    def use(self, name: str) -> ModelFacts | None:
        """The facts of a file, which from now on is not taken away while this process lives; None: there is
        none, or it is damaged."""
        path = self._whole(name)
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        if not (_try_lock(file, shared=True) and _is_still_there(path, file)):
            file.close()
            return None
        try:
            facts = read_model_facts(path)
        except LlmphaseError:
            file.close()  # it will be made anew and replaced
            return None
        with contextlib.suppress(OSError):  # in a folder that may only be read nothing has to go, either
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
        _IN_USE.append(file)
        return facts

    @contextlib.contextmanager
    def making(self, wait: Callable[[], None]) -> Iterator[None]:
        """Hold the folder's lock; `wait` is called twice a second while another program does. Half files
        that an ended program left are removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK_NAME).open("ab") as lock:
            while not _try_lock(lock, shared=False):
                wait()
                time.sleep(_POLL_S)
            for half in self.folder.glob(f"*{_HALF}"):
                with contextlib.suppress(OSError):  # Windows: another program is writing it
                    half.unlink()
            yield

    @contextlib.contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """Where to write a file; it gets its name when it is whole, and nothing stays behind when it fails.

        Raises LlmphaseError when what was written is no whole model.
        """
        half = self._whole(name).with_suffix(_HALF)
        try:
            yield half
            read_model_facts(half)
            with half.open("rb+") as file:
                os.fsync(file.fileno())
            half.replace(self._whole(name))
        except BaseException:
            with contextlib.suppress(OSError):  # the next program that makes files tries again
                half.unlink(missing_ok=True)
            raise

    def make_room(self, new_bytes: int) -> None:
        """Remove the files used longest ago until the new ones fit into the bound and on the disk.

        Nothing is removed where that would not be enough. Raises UsageError when the bound is too small,
        UnmeasurableError when the disk is.
        """
        present = sorted(self._files(), key=lambda path: path.stat().st_atime_ns)
        total = sum(path.stat().st_size for path in present)
        free_bytes = shutil.disk_usage(self.folder).free
        unused = [path for path in present if not _is_in_use(path)]
        unused_bytes = sum(path.stat().st_size for path in unused)
        if total - unused_bytes + new_bytes > self.limit_bytes:
            raise UsageError(
                f"{_gib(total - unused_bytes + new_bytes)} of variants are more than the"
                f" {_gib(self.limit_bytes)} that may be kept: name fewer types, or set {CACHE_SIZE_VARIABLE}",
                reason="cache-size",
            )
        lacking = new_bytes + _SPARE_BYTES - free_bytes
        if lacking > unused_bytes:
            raise UnmeasurableError(
                f"the variants need {_gib(new_bytes)}, and {_gib(free_bytes)} are free in"
                f" {show_path(self.folder)}: make room, name fewer types, or choose another folder with"
                f" {CACHE_FOLDER_VARIABLE}",
                reason="disk-space",
            )
        wanted = max(lacking, total + new_bytes - self.limit_bytes)
        for path in unused:
            if wanted <= 0:
                break
            wanted -= _remove(path)

    def free_bytes(self) -> int:
        """Room on the disk."""
        return shutil.disk_usage(self.folder).free

    def _whole(self, name: str) -> Path:
        return self.folder / f"{name}{_WHOLE}"

    def _files(self) -> list[Path]:
        return [path for path in self.folder.glob(f"*{_WHOLE}") if path.is_file()]


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / _GIB:.2f} GiB"


def _try_lock(file: BinaryIO, *, shared: bool) -> bool:
    """Lock an open file until it is closed; False while another program's lock is in the way."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still_there(path: Path, file: BinaryIO) -> bool:
    """Whether the name still means the file that was opened: it may have been removed before the lock."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _is_in_use(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return not _try_lock(file, shared=False)
    except FileNotFoundError:
        return False


def _remove(path: Path) -> int:
    """Remove a file unless somebody has begun to use it; bytes freed."""
    n_bytes = path.stat().st_size
    if sys.platform == "win32":
        try:
            path.unlink()
        except PermissionError:
            return 0
        return n_bytes
    with path.open("rb") as file:
        if not _try_lock(file, shared=False):
            return 0
        path.unlink()
    return n_bytes
