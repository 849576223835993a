"""Measured ceilings, kept per machine and engine build: they change with neither model nor day.

One file a key. A file that can not be read, or that another version or another key wrote, counts as not
there: ceilings are quickly measured anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from pathlib import Path

from probes import codec
from probes.atomic_file import replace_file
from probes.errors import UnmeasurableError, UsageError
from probes.messages import MeasureCeilings
from probes.records import DeviceCeiling

CACHE_FOLDER_VARIABLE = "LLMPHASE_CACHE_DIR"
_FORMAT = 2
"""Raise it when what is measured, or how, changes: older files are measured anew then."""
_MOST_BYTES = 4 * 2**20
_PASSING = ("budget:", "busy:", "memory:", "compute:", "device:")
"""Reasons in `DeviceCeiling.unknown` that another time may not hold."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CeilingKey:
    """All that ceilings depend on."""

    cpu_name: str | None
    usable_cpus: int
    devices: tuple[str, ...]
    """Name and description of each device."""
    engine_version: str
    engine_commit: str | None
    asked: MeasureCeilings
    """All that was asked for; free memory and time, which differ from day to day, are left out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    format: int
    key: CeilingKey
    ceilings: tuple[DeviceCeiling, ...]


def cache_folder(name: str = "ceilings") -> Path:
    """Under `LLMPHASE_CACHE_DIR` where it is set, else in the user's cache folder."""
    chosen = os.environ.get(CACHE_FOLDER_VARIABLE)
    if chosen:
        return Path(chosen) / name
    import platformdirs

    return platformdirs.user_cache_path("llmphase", appauthor=False) / name


def is_worth_keeping(ceilings: tuple[DeviceCeiling, ...]) -> bool:
    """Whether another measurement would tell no more: time sufficed, and nothing else ran."""
    reasons = [reason for ceiling in ceilings for reason in ceiling.unknown.values()]
    return bool(ceilings) and not any(reason.startswith(_PASSING) for reason in reasons)


@dataclasses.dataclass(frozen=True, slots=True)
class CeilingCache:
    """The folder of measured ceilings. It is made by the first save."""

    folder: Path = dataclasses.field(default_factory=cache_folder)

    def load(self, key: CeilingKey) -> tuple[DeviceCeiling, ...] | None:
        """What was measured for this key; None: nothing that can be used."""
        try:
            with self._file(key).open("rb") as file:
                text = file.read(_MOST_BYTES)
            content = codec.decode(_Content, json.loads(text))
        except (OSError, ValueError, RecursionError, UsageError):
            return None  # measured anew, and replaced by the next save
        return content.ceilings if (content.format, content.key) == (_FORMAT, key) else None

    def save(self, key: CeilingKey, ceilings: tuple[DeviceCeiling, ...]) -> None:
        """Keep the ceilings; the file is at every moment either the earlier or the new one, whole.

        Raises UnmeasurableError (`not-saved`): the ceilings are good all the same.
        """
        text = json.dumps(codec.encode(_Content(format=_FORMAT, key=key, ceilings=ceilings)))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self._file(key), text.encode("ascii"))
        except OSError as error:
            raise UnmeasurableError(
                f"ceilings are not kept in {self.folder}: {error.strerror or error}. They will be measured "
                f"again; {CACHE_FOLDER_VARIABLE} names another folder",
                reason="not-saved",
            ) from error

    def forget(self, key: CeilingKey) -> None:
        """Drop what is kept for this key, after a run that was faster than it allows."""
        with contextlib.suppress(OSError):  # gone already, or a folder that is not ours: `load` checks
            self._file(key).unlink()

    def _file(self, key: CeilingKey) -> Path:
        name = json.dumps(codec.encode(key), sort_keys=True)
        return self.folder / f"{hashlib.sha256(name.encode('ascii')).hexdigest()[:24]}.json"
