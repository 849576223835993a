"""Writing a file so that at every moment it is either the earlier or the new one, whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

_PREFIX, _SUFFIX = ".llmphase-", ".tmp"
_LEFT_S = 600.0
"""Nothing takes so long to write."""


def replace_file(target: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write beside the target under a name of its own, then rename over it.

    The content is on the disk before the name is taken. `mode`: the new file's permissions; None: it is
    its owner's alone. Raises OSError; whatever interrupts it, the earlier file stays and nothing stands
    beside it.
    """
    # The name does not hold the target's: that may be as long as the file system allows.
    descriptor, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove what programs that were killed while writing have left beside their targets."""
    youngest = time.time() - _LEFT_S
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # of another user, or gone by now: no harm
            if path.stat().st_mtime < youngest:
                path.unlink()
