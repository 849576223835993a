"""Numbers, sizes and durations as other programs print them, in any language's way of writing figures."""

from __future__ import annotations

import math
import re

NUMBER = (
    r"[-+]?(?:\d{1,3}(?:[\u00a0\u202f'’.,]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?"
    r"|-?(?:inf(?:inity)?|nan)(?:\(\w+\))?)"
)
"""A figure in a text: grouped or not, with a point or a comma, or the words of C for what is no number."""

_GROUPS = re.compile(r"[\u00a0\u202f'’]")
_SIZE = re.compile(rf"(?P<value>{NUMBER})\s*(?P<unit>[kKMGT]?i?B)\b")
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_SIZES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_GO_PART = re.compile(r"(?P<value>\d+(?:[.,]\d+)?)(?P<unit>h|ms|ns|s|m(?![^\d\s]*s)|[^\d\s.,]{1,3}s)")
_GO_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "ns": 1e-9}
_MICRO = 1e-6


def number(text: str) -> float:
    """`1234.5`, `1,234.5`, `1.234,5`, `1 234,5`; NaN for what is no number.

    With both signs the last one parts the fraction. A single comma before three digits parts thousands, any
    other single sign the fraction: programs that print thousands print them with commas.
    """
    plain = _GROUPS.sub("", text.strip())
    comma, point = plain.rfind(","), plain.rfind(".")
    if comma >= 0 and point >= 0:
        grouping = "," if point > comma else "."
        plain = plain.replace(grouping, "").replace(",", ".")
    elif comma >= 0:
        is_group = plain.count(",") > 1 or re.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}", plain)
        plain = plain.replace(",", "" if is_group else ".")
    elif plain.count(".") > 1:
        plain = plain.replace(".", "")
    try:
        return float(plain)
    except ValueError:
        return math.nan


def count(text: str) -> int | None:
    """A whole number, whose signs can only part thousands: `1,294`, `1.294`. None for any other."""
    plain = re.sub(r"[\u00a0\u202f'’.,](?=\d{3}(?!\d))", "", text.strip())
    return int(plain) if plain.isdecimal() and len(plain) <= 18 else None


def size_bytes(text: str) -> int | None:
    """`11.0 GiB`, `4.7 GB`, `512 MiB`; None where it is no size."""
    match = _SIZE.search(text)
    if match is None:
        return None
    prefix = match["unit"].rstrip("B").rstrip("i").upper()
    scale = _BINARY_SIZES.get(prefix, 1) if "i" in match["unit"] else _SIZES[prefix]
    value = number(match["value"]) * scale
    return round(value) if math.isfinite(value) and value >= 0 else None


def go_duration_s(text: str) -> float | None:
    """Seconds of a duration as Go prints it: `1m2.5s`, `391.1ms`, `850µs`; None where it is none.

    The sign of micro comes in two code points and, from a wrongly decoded terminal, as rubbish: what stands
    before an `s` and is neither `m` nor `n` is it.
    """
    plain = text.strip()
    parts = list(_GO_PART.finditer(plain))
    if not parts or "".join(part[0] for part in parts) != plain:
        return None
    return sum(number(part["value"]) * _GO_UNITS.get(part["unit"], _MICRO) for part in parts)
