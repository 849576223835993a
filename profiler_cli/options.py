"""Option types that commands share, and parsers of their little languages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import typer

from probes.errors import UsageError

_NUMBER = r"[0-9]{1,12}"
_RANGE = re.compile(rf"({_NUMBER})-({_NUMBER})(?:([*+])({_NUMBER}))?")
_MAX_POINTS = 100_000
_UNITS_NS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h)")

T = TypeVar("T", bound=str)
V = TypeVar("V")


def parse_lengths(text: str, option: str = "--prompt-tokens") -> tuple[int, ...]:
    """Token counts from a list of numbers and ranges, as given: `512,2048`, `512-8192*2`, `0-4096+512`.

    A range without a step goes up by one. Raises UsageError naming the part that is wrong.
    """
    lengths: list[int] = []
    for part in text.split(","):
        part = part.strip()
        if re.fullmatch(_NUMBER, part):
            lengths.append(int(part))
        elif match := _RANGE.fullmatch(part):
            lengths.extend(_range(part, match, option))
        else:
            raise UsageError(
                f"{option}: {_shown(part)} is no token count; give numbers and ranges such as "
                "0,128,512-8192*2 or 0-4096+512",
                reason="lengths",
            )
        if len(lengths) > _MAX_POINTS:
            raise UsageError(f"{option}: too many lengths", reason="lengths")
    return tuple(lengths)


def _range(part: str, match: re.Match[str], option: str) -> list[int]:
    first, last = int(match[1]), int(match[2])
    kind, step = match[3] or "+", int(match[4] or 1)
    if first > last:
        raise UsageError(f"{option}: the range {part} runs backwards", reason="lengths")
    if step < (2 if kind == "*" else 1) or (kind == "*" and first == 0):
        raise UsageError(f"{option}: the range {part} never ends", reason="lengths")
    values: list[int] = []
    value = first
    while value <= last and len(values) <= _MAX_POINTS:
        values.append(value)
        value = value * step if kind == "*" else value + step
    return values


def parse_duration_ns(text: str, option: str = "--budget") -> int:
    """Nanoseconds from `90s`, `2m`, `1h30m`, `500ms`, or a plain number of seconds. Raises UsageError."""
    plain = text.strip().lower()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", plain):
        plain += "s"
    parts = _DURATION.findall(plain)
    if not parts or "".join(number + unit for number, unit in parts) != plain:
        raise UsageError(
            f"{option}: {_shown(text)} is no duration; give one such as 90s, 2m or 1h30m", reason="duration"
        )
    total_ns = sum(round(float(number) * _UNITS_NS[unit]) for number, unit in parts)
    if not _UNITS_NS["ms"] <= total_ns <= 7 * 24 * _UNITS_NS["h"]:
        raise UsageError(f"{option}: {_shown(text)} is not between 1ms and 7 days", reason="duration")
    return total_ns


def parse_share(text: str, option: str = "--precision") -> float:
    """A share from `3%` or `0.03`. Raises UsageError."""
    plain = text.strip()
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?|\.[0-9]{1,12}) ?(%?)", plain)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0.0005 <= share <= 1:
        raise UsageError(
            f"{option}: {_shown(text)} is no share between 0.05% and 100%; give one such as 3%",
            reason="share",
        )
    return share


def parse_gpu_layers(text: str) -> int | Literal["auto"]:
    """A number of layers, `all` (-1) or `auto`. Raises UsageError."""
    plain = text.strip().lower()
    if plain == "auto":
        return "auto"
    if plain == "all":
        return -1
    if re.fullmatch(r"[0-9]{1,5}", plain):
        return int(plain)
    raise UsageError(
        f"--gpu-layers: {_shown(text)} is neither a number nor all nor auto", reason="gpu-layers"
    )


def parse_choice(text: str, option: str, choices: tuple[T, ...]) -> T:
    """One of the choices, whatever its case. Raises UsageError listing them."""
    plain = text.strip().lower()
    if plain in choices:
        return next(choice for choice in choices if choice == plain)
    raise UsageError(f"{option}: {_shown(text)} is none of {', '.join(choices)}", reason="choice")


def optional(parse: Callable[[str], V], text: str | None) -> V | None:
    """Parse what was given; None stays None."""
    return None if text is None else parse(text)


def optional_choice(text: str | None, option: str, choices: tuple[T, ...]) -> T | None:
    """As `parse_choice`; None stays None."""
    return None if text is None else parse_choice(text, option, choices)


def _shown(text: str) -> str:
    return repr(text[:40])


FLASH_CHOICES: tuple[Literal["on", "off", "auto"], ...] = ("on", "off", "auto")
LOAD_MODES: tuple[Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"], ...] = (
    "auto",
    "none",
    "mmap",
    "mlock",
    "mmap+mlock",
    "dio",
)
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
TOKEN_KINDS: tuple[Literal["text", "random"], ...] = ("text", "random")
LIKES: tuple[Literal["llama-bench"], ...] = ("llama-bench",)
FORMATS = ("terminal", "json", "jsonl", "csv", "markdown")

Format = Annotated[
    str | None,
    typer.Option("--format", help=f"Form: {', '.join(FORMATS)}.", show_default=False),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", help="Write the report to FILE, in the form of its ending.", metavar="FILE"
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on standard error.")]
