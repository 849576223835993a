"""Public data-sheet figures of common GPUs and of chips with one memory: `datasheet.csv`, a source a row.

Memory is in GiB as sold, bandwidth in 10^9 bytes a second, both of one device: a card of two processors
(Tesla K80, MI250X) is two. The figures are what makers state, not what a program reaches, and are used where
nothing was measured. Most rows cite one file that holds Wikipedia's lists of GPUs as of June 2025.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib.resources
import re
from collections.abc import Mapping, Sequence
from typing import Any

_GIB = 2**30
_SAME_MEMORY = 0.12
"""Drivers report up to a tenth less than what is sold, and GB for GiB is 7 % off."""
_MAKERS = frozenset(
    {
        "nvidia",
        "geforce",
        "quadro",
        "tesla",
        "amd",
        "radeon",
        "instinct",
        "advanced",
        "micro",
        "devices",
        "inc",
    }
    | {"intel", "apple", "corporation", "graphics", "gpu", "tm", "r"}
)
"""Words that tell no two devices of this table apart, beside a model's number."""
_DISTINGUISHING = frozenset(
    {"ti", "super", "xt", "xtx", "gre", "laptop", "max", "pro", "ultra", "d", "ada", "sxm", "pcie", "nvl"}
    | {"blackwell"}
)
"""Words that make another device of the one before them."""
_ALIASES = {"mobile": "laptop", "sxm2": "sxm", "sxm4": "sxm", "sxm5": "sxm", "m": "laptop"}
_COUNT = re.compile(r"^\s*(\d{1,2})\s*[x×]\s+|[\s(]+[x×]\s*(\d{1,2})\)?\s*$", re.I)
_MEMORY = re.compile(r"\b(\d{1,3})\s*(?:GB|GiB|G)\b", re.I)
_PARTS = re.compile(r"\s*(?:,|;|\+(?!\s*\d)|\band\b|/(?=\s*[A-Za-z]))\s*")
_WORDS = re.compile(r"(?:[a-z]+\d+|\d+)(?:(?!(?:ti|super|xtx?|gre)\b)[a-z]+)?|[a-z]+\+?", re.I)
"""A number keeps the letters next to it (`5600M`, `A100`, `L40S`) but for words of their own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One row."""

    name: str
    memory_bytes: int | None
    """None where it comes in many sizes."""
    bandwidth_bytes_s: float
    is_unified: bool
    """CPU and GPU share this memory."""
    source: str
    """The page that states the bandwidth; the name of the maker's own where it was worked out."""
    basis: str
    """`page`, or `derived: ` and the sum: bus width x data rate per pin / 8."""

    @property
    def origin(self) -> str:
        """Where the bandwidth is from, with the sum where it was worked out."""
        return self.source if self.basis == "page" else f"{self.source}, {self.basis}"


@functools.cache
def sheets() -> tuple[Sheet, ...]:
    """All rows, in the file's order."""
    text = importlib.resources.files("reports").joinpath("datasheet.csv").read_text("utf-8")
    return tuple(
        Sheet(
            name=row["name"],
            memory_bytes=int(row["memory_gib"]) * _GIB if row["memory_gib"] else None,
            bandwidth_bytes_s=float(row["bandwidth_gb_s"]) * 1e9,
            is_unified=row["unified"] == "yes",
            source=row["source"],
            basis=row["basis"],
        )
        for row in csv.DictReader(text.splitlines())
    )


def find(name: str, memory_bytes: int | None = None) -> tuple[Sheet, ...]:
    """The variants of one device that `name` may mean; empty where the table has none of them.

    A word that makes another device (`Ti`, `Laptop`) must agree. A memory size in the name, or
    `memory_bytes`, chooses among variants.
    """
    words = _words(name)
    best: list[Sheet] = []
    longest = 0
    for sheet in sheets():
        sought = _words(sheet.name)
        place = _place(sought, words)
        if place is None or len(sought) < longest:
            continue
        if any(word in _DISTINGUISHING and word not in sought for word in words[place:]):
            continue
        if len(sought) > longest:
            longest, best = len(sought), []
        best.append(sheet)
    stated = _MEMORY.search(name)
    size = int(stated[1]) * _GIB if stated else memory_bytes
    fitting = [sheet for sheet in best if size and _is_same_size(sheet, size)]
    return tuple(fitting or best)


def rows_of(name: str) -> tuple[Sheet, ...]:
    """Rows of every device that `name` may mean; several are parted by commas."""
    return tuple(sheet for part in _PARTS.split(name) if part for sheet in find(part))


def facts_about(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that the table adds for the GPU named in `facts`: of variants the slowest bandwidth, and a size
    only where all agree. What is known already is not told again."""
    name = facts.get("gpu_name")
    if not name or facts.get("gpu_present") is False:
        return {}
    parts = [part for part in _PARTS.split(name) if part]
    numbers = [_number_of(part) for part in parts]
    n_gpus = facts.get("n_gpus") or sum(numbers)
    stated = facts.get("gpu_memory_bytes")
    each = stated // n_gpus if stated and n_gpus else None
    found = [find(part, each) for part in parts]
    if not found or not all(found):
        return {}
    slowest = min(sheet.bandwidth_bytes_s for variants in found for sheet in variants)
    unified = {sheet.is_unified for variants in found for sheet in variants}
    added = {
        "gpu_bandwidth_bytes_s": slowest,
        "n_gpus": n_gpus,
        "gpu_present": True,
        "gpu_memory_bytes": _memory(found, numbers, n_gpus),
        "unified_memory": unified.pop() if len(unified) == 1 else None,
    }
    return {key: value for key, value in added.items() if value is not None and key not in facts}


def _memory(found: Sequence[tuple[Sheet, ...]], numbers: Sequence[int], n_gpus: int) -> int | None:
    """Of all devices; None where a variant is not told, or the memory is no device's own."""
    total = 0
    for variants, number in zip(found, numbers, strict=True):
        sizes = {None if sheet.is_unified else sheet.memory_bytes for sheet in variants}
        size = sizes.pop() if len(sizes) == 1 else None
        if size is None:
            return None
        # One name for several devices: they are alike.
        total += size * (n_gpus if len(found) == 1 else number)
    return total


def _number_of(part: str) -> int:
    match = _COUNT.search(part)
    return max(1, int(match[1] or match[2])) if match else 1


def _words(name: str) -> list[str]:
    """`NVIDIA GeForce RTX 3080Ti Laptop GPU` -> rtx, 3080, ti, laptop."""
    plain = re.sub(r"\bRTX(?=\d)|\bGTX(?=\d)|\bRX(?=\d)", lambda series: f"{series[0]} ", name, flags=re.I)
    plain = _MEMORY.sub(" ", _COUNT.sub(" ", plain).replace("Max-Q", "laptop").replace("-", " "))
    words = [_ALIASES.get(word, word) for word in map(str.lower, _WORDS.findall(plain))]
    return [word for word in words if word not in _MAKERS]


def _place(sought: list[str], words: list[str]) -> int | None:
    """Where the words stand one after another: the place after them. None where they do not."""
    n = len(sought)
    return next((i + n for i in range(len(words) - n + 1) if words[i : i + n] == sought), None)


def _is_same_size(sheet: Sheet, size: int) -> bool:
    return (
        sheet.memory_bytes is not None and abs(sheet.memory_bytes - size) <= _SAME_MEMORY * sheet.memory_bytes
    )
