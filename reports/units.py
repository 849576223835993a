"""The only place where a quantity becomes text. None becomes the word `unknown`, never a number.

Signs outside ASCII (`µ`, `±`, `≈`) are spelled out by `reports.text.to_ascii` where a terminal needs it.
"""

from __future__ import annotations

import math
from datetime import datetime, timezone

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZE_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_COUNT_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_FLOP_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
MINUTES_FROM_S = 600.0
"""From here on a duration is written in minutes."""

UNKNOWN = "unknown"


def unknown(reason: str) -> str:
    """The word for a missing quantity, with why it is missing."""
    return f"{UNKNOWN} ({reason})"


def _digits(value: float) -> str:
    """Three significant digits without an exponent: `1.23`, `45.1`, `850`, `12,345`."""
    value += 0.0  # A negative zero loses its sign.
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def _time_unit(seconds: float) -> tuple[float, str]:
    """The unit in which `seconds` reads between 1 and 999."""
    for scale, name in _TIME_UNITS:
        if seconds >= scale * 0.9995:
            return scale, name
    return _TIME_UNITS[-1]


def is_quantity(value: float | None) -> bool:
    """Whether `value` may be printed: known, finite, not negative."""
    return value is not None and math.isfinite(value) and value >= 0


def duration(seconds: float | None) -> str:
    """Seconds as `1.23 s`, `45.1 ms`, `850 µs`, from ten minutes on `12.5 min`, zero as `0 s`."""
    if seconds is None or not is_quantity(seconds):
        return UNKNOWN
    if seconds == 0:
        return "0 s"
    if seconds >= MINUTES_FROM_S:
        return f"{_digits(seconds / 60)} min"
    scale, name = _time_unit(seconds)
    return f"{_digits(seconds / scale)} {name}"


def duration_interval(seconds: float | None, low: float | None, high: float | None) -> str:
    """Seconds with the wider half of their interval, in one unit: `6.10 ± 0.04 s`. Without interval: the
    value alone."""
    if seconds is None or not is_quantity(seconds) or low is None or high is None or seconds == 0:
        return duration(seconds)
    half = max(high - seconds, seconds - low, 0.0)
    scale, name = (60.0, "min") if seconds >= MINUTES_FROM_S else _time_unit(seconds)
    value = seconds / scale
    places = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    step = 10.0**-places
    spread = f"{half / scale:,.{places}f}" if half / scale >= step / 2 else f"<{step:.{places}f}"
    return f"{value:,.{places}f} ± {spread} {name}"


def duration_range(seconds: float, low: float, high: float) -> str:
    """Seconds with the smallest and the largest sample, in one unit: `6.10 (6.05–6.31) s`."""
    if not all(is_quantity(value) for value in (seconds, low, high)):
        return UNKNOWN
    scale, name = (60.0, "min") if seconds >= MINUTES_FROM_S else _time_unit(seconds)
    return f"{_digits(seconds / scale)} ({_digits(low / scale)}–{_digits(high / scale)}) {name}"


def size(n_bytes: float | None) -> str:
    """Bytes as `93.1 MiB`, `4.20 GiB`, `512 B`."""
    if n_bytes is None or not is_quantity(n_bytes):
        return UNKNOWN
    for scale, name in _SIZE_UNITS:
        if n_bytes >= scale:
            return f"{_digits(n_bytes / scale)} {name}"
    return f"{n_bytes + 0.0:.0f} B"


def size_rate(n_bytes: float, seconds: float) -> str:
    """Bytes over seconds as `1.20 GiB/s`; over no time it is unknown."""
    return f"{size(n_bytes / seconds)}/s" if seconds > 0 else UNKNOWN


def flop_rate(flops_per_s: float | None) -> str:
    """Floating-point operations per second as `119 GFLOP/s`, `1.20 TFLOP/s` (powers of ten)."""
    if flops_per_s is None or not is_quantity(flops_per_s):
        return UNKNOWN
    for scale, name in _FLOP_UNITS:
        if flops_per_s >= scale:
            return f"{_digits(flops_per_s / scale)} {name}FLOP/s"
    return f"{_digits(flops_per_s)} FLOP/s"


def rate(tokens_per_s: float | None) -> str:
    """Tokens per second as a bare figure (`336`, `14.2`, `0.85`), for a column whose head names the unit."""
    if tokens_per_s is None or not is_quantity(tokens_per_s):
        return UNKNOWN
    return _digits(tokens_per_s)


def token_rate(tokens_per_s: float | None) -> str:
    """Tokens per second with their unit: `336 tok/s`."""
    text = rate(tokens_per_s)
    return text if text == UNKNOWN else f"{text} tok/s"


def percent(share: float | None) -> str:
    """A share (0.77) as `77 %`; below 10 % with one decimal; what is not zero never reads as zero."""
    if share is None or not is_quantity(share * 100):
        return UNKNOWN
    value = share * 100 + 0.0
    if 0 < value < 0.1:
        return "<0.1 %"
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:.0f} %"


def change(share: float | None) -> str:
    """A change as a share (0.102) with its sign: `+10.2 %`, `-3.1 %`, `0.0 %`."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    value = round(share * 100, 1) + 0.0
    return f"{value:+,.1f} %" if value and abs(value) < 99.95 else f"{value:+,.0f} %" if value else "0.0 %"


def count(number: int | None) -> str:
    """A whole number with thousands parted: `2,048`."""
    return UNKNOWN if number is None else f"{number:,}"


def short_count(number: int | None) -> str:
    """A large whole number in brief: `135 M`, `7.24 B` (10^9)."""
    if number is None or number < 0:
        return UNKNOWN
    for scale, name in _COUNT_UNITS:
        if number >= scale:
            return f"{_digits(number / scale)} {name}"
    return str(number)


def moment_tick(moment: float, span_s: float) -> str:
    """A moment (seconds since the epoch) for a time axis in UTC: `2026-11-30`; within three days `11-30
    20:55`."""
    form = "%Y-%m-%d" if span_s > 3 * 86_400 else "%m-%d %H:%M"
    return datetime.fromtimestamp(moment, tz=timezone.utc).strftime(form)


def tick(tokens: int) -> str:
    """A length in tokens for an axis: `256`, `2k`, `1.5k`, `128k`."""
    if tokens < 1000:
        return str(tokens)
    binary = tokens / 1024
    if binary == int(binary):
        return f"{int(binary)}k"
    return f"{tokens / 1000:.1f}k".replace(".0k", "k")
