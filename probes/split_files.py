"""The parts of a split model: `NAME-00001-of-00003.gguf` and its neighbours."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartName:
    """What the name of one part says."""

    folder: Path
    stem: str
    number: int
    """From 1."""
    count: int

    def part(self, number: int) -> Path:
        """Return the path of another part of the same model."""
        return self.folder / f"{self.stem}-{number:05d}-of-{self.count:05d}.gguf"

    def parts(self) -> list[Path]:
        """Return the paths of all parts in order, on disk or not."""
        return [self.part(number) for number in range(1, self.count + 1)]


def part_name(path: Path) -> PartName | None:
    """Read a part's name as `llama_split_path` writes it; None when the name is no such name."""
    match = _PART_NAME.fullmatch(path.name)
    if match is None:
        return None
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count:
        return None
    return PartName(folder=path.parent, stem=match["stem"], number=number, count=count)


def is_later_part(path: Path) -> bool:
    """Tell whether the name is that of a second or later part."""
    part = part_name(path)
    return part is not None and part.number > 1


def first_part(path: Path) -> Path:
    """Return the first part of the split model that a later part belongs to; other paths as they are."""
    part = part_name(path)
    return path if part is None or part.number == 1 else part.part(1)
