"""Option types that commands share, and parsers of their little languages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import typer

from probes.errors import UsageError
from probes.layer_steps import GpuLayers, LayerSteps
from probes.tensor_overrides import compile_pattern

_NUMBER = r"[0-9]{1,12}"
_RANGE = re.compile(rf"({_NUMBER})-({_NUMBER})(?:([*+])({_NUMBER}))?")
_MAX_POINTS = 100_000
_MAX_AXIS = 256
_LAYER_STEPS = re.compile(r"([0-9]{1,5})-(all|[0-9]{1,5}(?=\*))(?:\*([0-9]{1,3}))?")
_SERVER = re.compile(r"[^\s:/\[\]]+:([0-9]{1,5})")
_IPV6 = re.compile(r"\[.*|[0-9A-Fa-f]*:[0-9A-Fa-f]*:.*")
_LAST_PORT = 65535
_SHARE = r"[0-9]{1,9}(\.[0-9]{1,9})?"
_SWITCH = ("on", "off")
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
                f"{option}: {_shown(part)} is no number; give numbers and ranges such as "
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


def parse_cell_timeout_ns(text: str) -> int:
    """As `parse_duration_ns`, from one second: the engine's process tells of its calls twice a second at the
    most, so a shorter silence says nothing. Raises UsageError."""
    timeout_ns = parse_duration_ns(text, "--cell-timeout")
    if timeout_ns < _UNITS_NS["s"]:
        raise UsageError(f"--cell-timeout: {_shown(text)} is less than 1s", reason="duration")
    return timeout_ns


def parse_bandwidth(text: str, option: str = "--memory-bandwidth") -> float:
    """Bytes a second from `50GB/s`, `51.2 GB/s`, `46.5GiB/s`. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?([MGT])(i?)B(?:/s|ps)?", text.strip(), re.I)
    rate = 0.0
    if match:
        power = "MGT".index(match[2].upper()) + 2
        rate = float(match[1]) * float(1024 if match[3] else 1000) ** power
    if not 1e8 <= rate <= 1e14:
        raise UsageError(
            f"{option}: {_shown(text)} is no bandwidth from 0.1 GB/s to 100 TB/s; give one such as 50GB/s",
            reason="bandwidth",
        )
    return rate


def parse_age_s(text: str, option: str) -> float:
    """Seconds from `30d`, `8w` or `12h`. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text.strip().lower())
    if match is None or not int(match[1]):
        raise UsageError(f"{option}: {_shown(text)} is no age; give one such as 30d, 8w or 12h", reason="age")
    return int(match[1]) * {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}[match[2]]


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


def parse_gpu_layers(text: str) -> tuple[GpuLayers, ...]:
    """Numbers of layers, `all` (-1), `auto` (None), and ranges: `0-24+8`, `0-all*5` (5 even steps).

    Raises UsageError.
    """
    values: list[GpuLayers] = []
    for part in text.lower().split(","):
        plain = part.strip()
        if plain in ("auto", "all"):
            values.append(None if plain == "auto" else -1)
        elif match := _LAYER_STEPS.fullmatch(plain):
            values.append(_layer_steps(match))
        elif re.fullmatch(r"[0-9]{1,5}", plain):
            values.append(int(plain))
        elif re.fullmatch(r"[0-9]{1,5}-[0-9]{1,5}(\+[0-9]{1,5})?", plain):
            values.extend(parse_lengths(plain, "--gpu-layers"))
        else:
            raise UsageError(
                f"--gpu-layers: {_shown(part)} is neither a number nor all nor auto nor a range such as"
                " 0-all*5",
                reason="gpu-layers",
            )
    if len(values) > _MAX_AXIS:
        raise UsageError(f"--gpu-layers: give {_MAX_AXIS} steps at the most", reason="gpu-layers")
    return tuple(values)


def _layer_steps(match: re.Match[str]) -> LayerSteps:
    points = int(match[3] or 5)
    if not 2 <= points <= _MAX_AXIS:
        raise UsageError(
            f"--gpu-layers: {_shown(match[0])}: 2 to {_MAX_AXIS} steps are possible", reason="gpu-layers"
        )
    last = None if match[2] == "all" else int(match[2])
    return LayerSteps(first=int(match[1]), last=last, points=points)


def parse_servers(text: str) -> tuple[str, ...]:
    """Addresses `host:port` of RPC servers. Raises UsageError, for IPv6 too: the engine's client opens IPv4
    connections alone (llama.cpp, ggml-rpc/transport.cpp) and takes what stands before the first colon for the
    host."""
    servers = tuple(part.strip() for part in text.split(","))
    for server in servers:
        if _IPV6.fullmatch(server):
            raise UsageError(
                f"--rpc: {_shown(server)} is an IPv6 address, and the engine connects over IPv4 alone; give"
                " the server's IPv4 address or its name, such as 192.168.1.20:50052",
                reason="rpc",
            )
        match = _SERVER.fullmatch(server)
        if match is None or not 1 <= int(match[1]) <= _LAST_PORT:
            raise UsageError(
                f"--rpc: {_shown(server)} is no HOST:PORT; give one such as 192.168.1.20:50052", reason="rpc"
            )
    return servers


def parse_devices(text: str) -> tuple[tuple[str, ...], ...]:
    """Lists of device names: `CUDA0/CUDA1,CUDA0`; `none` for the host alone. Raises UsageError."""
    lists = tuple(tuple(name.strip() for name in part.split("/")) for part in text.split(","))
    if any(not name for names in lists for name in names):
        raise UsageError(
            f"--device: {_shown(text)} names no device somewhere; give names such as CUDA0/CUDA1",
            reason="device",
        )
    return lists


def parse_splits(text: str) -> tuple[tuple[float, ...], ...]:
    """Proportions of devices: `3/1,1/1`. Raises UsageError."""
    splits = []
    for part in text.split(","):
        numbers = part.strip().split("/")
        if not all(re.fullmatch(_SHARE, number) for number in numbers):
            raise UsageError(
                f"--tensor-split: {_shown(part)} is no list of shares; give one such as 3/1",
                reason="tensor-split",
            )
        splits.append(tuple(float(number) for number in numbers))
        if not sum(splits[-1]) > 0:
            raise UsageError("--tensor-split: one share must be above 0", reason="tensor-split")
    return tuple(splits)


def parse_overrides(text: str) -> tuple[tuple[str, ...], ...]:
    """Lists of PATTERN=BUFFER: `,` parts the values of the axis, `/` the overrides of one. Raises
    UsageError."""
    lists = tuple(tuple(one.strip() for one in part.split("/")) for part in text.split(","))
    for override in (one for overrides in lists for one in overrides):
        pattern, _, buffer = override.rpartition("=")
        if not (pattern and buffer):
            raise UsageError(
                f"--override-tensor: {_shown(override)} is no PATTERN=BUFFER; give one such as"
                " ffn_.*_exps=CPU",
                reason="override-tensor",
            )
        compile_pattern(pattern)
    return lists


def choices(text: str | None, option: str, allowed: tuple[T, ...]) -> tuple[T, ...] | None:
    """Some of the choices, comma-separated; None stays None. Raises UsageError listing them."""
    if text is None:
        return None
    return tuple(parse_choice(part, option, allowed) for part in text.split(","))


def switches(text: str | None, option: str) -> tuple[bool, ...] | None:
    """`on`, `off`, or both as an axis; None stays None. Raises UsageError."""
    words = choices(text, option, _SWITCH)
    return None if words is None else tuple(word == "on" for word in words)


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
SPLIT_MODES: tuple[Literal["none", "layer", "row", "tensor"], ...] = ("none", "layer", "row", "tensor")
TOKEN_KINDS: tuple[Literal["text", "random"], ...] = ("text", "random")
LIKES: tuple[Literal["llama-bench"], ...] = ("llama-bench",)
FORMATS = ("terminal", "json", "jsonl", "csv", "markdown")
PROFILE_FORMATS = (
    *FORMATS,
    *("llama-bench-json", "llama-bench-jsonl", "llama-bench-csv", "llama-bench-sql", "llama-bench-md"),
)
COMPARISON_FORMATS = (*FORMATS, "junit")

Format = Annotated[
    str | None,
    typer.Option("--format", help=f"Form: {', '.join(FORMATS)}.", show_default=False),
]
ProfileFormat = Annotated[
    str | None,
    typer.Option(
        "--format", help=f"Form: {', '.join(FORMATS)}, llama-bench-json|jsonl|csv|sql|md.", show_default=False
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", help="Write the report to FILE, in the form of its ending.", metavar="FILE"
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on standard error.")]
