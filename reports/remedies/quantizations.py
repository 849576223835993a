"""Usual quantizations: their size by the digit of their label."""

from __future__ import annotations

import re

BITS_PER_WEIGHT = {16: 16.0005, 8: 8.5008, 6: 6.5633, 5: 5.7036, 4: 4.8944, 3: 3.9960, 2: 3.1593}
"""Of a whole file by the digit of its label: F16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q3_K_M, Q2_K of an 8B model, as
llama.cpp's quantize README lists them."""
NAMES = {8: "Q8_0", 6: "Q6_K", 5: "Q5_K_M", 4: "Q4_K_M", 3: "Q3_K_M", 2: "Q2_K"}
_LABEL = re.compile(r"(?:^|[^A-Z0-9])(?:UD-)?(BF16|F16|F32|I?Q(\d))", re.IGNORECASE)


TRIED_BYTES = 4 * 2**30
"""Models up to this size are quantized for a trial: it takes seconds."""


def smaller(label: str | None) -> tuple[str, ...]:
    """The usual quantizations one and two steps below this one, the larger first."""
    digits = tuple(BITS_PER_WEIGHT)
    digit = digit_of(label)
    below = digits[digits.index(digit) + 1 :] if digit in digits else ()
    return tuple(NAMES[one] for one in below[:2])


def bytes_ratio(label: str | None, name: str) -> float:
    """Bytes of a model in this usual quantization over those under the label, which has a digit."""
    return BITS_PER_WEIGHT[digit_of(name)] / BITS_PER_WEIGHT[digit_of(label)]


def digit_of(label: str | None) -> int:
    """Bits in the label: 16 for F16 and BF16, 4 for `Q4_K - Medium`, `UD-Q4_K_XL`, `IQ4_XS`, `4-bit`; 0 for
    none."""
    found = _LABEL.search(label or "")
    if found:
        return int(found[2]) if found[2] else 16
    plain = re.match(r"(\d)-?bit", label or "", re.IGNORECASE)
    return int(plain[1]) if plain else 0
