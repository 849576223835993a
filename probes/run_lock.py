"""Keeps two programs from measuring the same saved run at once.

One file in the folder of runs stands for all of them: a run's lock is that of one byte, at a place made of
its id. The system lets go of it when its holder ends, however it ends, so a crash leaves nothing to clean up.
"""

from __future__ import annotations

import errno
import os
import sys
import zlib
from pathlib import Path
from typing import BinaryIO

LOCK_NAME = ".runs.lock"
_PLACES = 2**30
"""Windows counts places in signed 32 bits."""
_OPEN: dict[Path, BinaryIO] = {}
"""By folder, until the process ends: closing a file lets go of all of this process's locks in it."""
_HELD: set[tuple[Path, str]] = set()


def claim(folder: Path, run_id: str) -> bool:
    """Hold a run until this process ends; False: another program holds it.

    Raises OSError where the folder can not be written to, or where there are no locks.
    """
    if (folder, run_id) in _HELD:
        return True
    if folder not in _OPEN:
        folder.mkdir(parents=True, exist_ok=True)
        _OPEN[folder] = (folder / LOCK_NAME).open("ab", buffering=0)
    is_free = _try_lock(_OPEN[folder], zlib.crc32(run_id.encode()) % _PLACES)
    if is_free:
        _HELD.add((folder, run_id))
    return is_free


def _try_lock(file: BinaryIO, place: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        file.seek(place)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
    try:
        import fcntl
    except ImportError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):
        return False
    return True
