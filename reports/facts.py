"""Facts files: one JSON object of facts about a run, read strictly into `Evidence` and written back.

The keys are the names of `Evidence` fields that another tool or a person can know. A value that can not be is
refused by name; one that contradicts another is refused, or corrected with a note where it is plain which of
the two is right.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from probes.errors import UsageError
from reports import datasheet, plausibility
from reports.evidence import Evidence, Source
from reports.text import clean

_MAX_COUNT = 10**15
_LARGEST, _SMALLEST = 1e18, 1e-12
"""Beyond these no second, byte, token or rate was ever observed, and sums lose their meaning."""
_MAX_POINTS = 10_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FactsRead:
    """Evidence out of facts, and what was corrected on the way."""

    evidence: Evidence
    notes: tuple[str, ...]


class FactsError(UsageError):
    """A facts file that can not be used; the message names the key."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="bad-facts")


def read_facts(text: str) -> FactsRead:
    """Evidence from the text of a facts file. Raises FactsError."""
    return evidence_from(parse_facts(text))


def parse_facts(text: str) -> dict[str, Any]:
    """The keys and values of a facts file, not yet checked. Raises FactsError."""
    try:
        values = json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FactsError(f"the facts are no valid JSON: {clean(str(error))}") from error
    if not isinstance(values, dict):
        raise FactsError('the facts must be one JSON object, such as {"prefill_s": 7.9, "decode_s": 0.6}')
    return values


def evidence_from(values: Mapping[str, object], *, estimated: Collection[str] = ()) -> FactsRead:
    """Evidence from parsed facts; null means not known.

    `estimated` names the facts that were worked out rather than reported. Raises FactsError.
    """
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _READERS:
            raise FactsError(_unknown_key(key))
        if value is not None:
            try:
                kept[key] = _READERS[key](value)
            except _BadValueError as problem:
                raise FactsError(f"{key}: {problem}") from None
    for _, contradiction in plausibility.contradictions(kept):
        raise FactsError(contradiction)
    sources: dict[str, Source] = {key: _source(key, estimated) for key in kept}
    return _finished(kept, sources, [])


def lenient_evidence(values: Mapping[str, object], sources: Mapping[str, Source]) -> FactsRead:
    """Evidence from what another program printed: a value that can not be is left out with a remark.

    `sources` has the source of each fact that is not from the log. Fields of `Evidence` that no facts file
    has are taken as they are.
    """
    kept: dict[str, Any] = {}
    notes: list[str] = []
    for key, value in values.items():
        if value is None:
            continue
        try:
            kept[key] = _READERS[key](value) if key in _READERS else value
        except _BadValueError as problem:
            notes.append(f"{key} is left out: {problem}")
    for less_sure, contradiction in list(plausibility.contradictions(kept)):
        if kept.pop(less_sure, None) is not None:
            notes.append(f"{contradiction}; {less_sure} is left out")
    return _finished(kept, {key: sources.get(key, "log") for key in kept}, notes)


def _finished(kept: dict[str, Any], sources: dict[str, Source], notes: list[str]) -> FactsRead:
    """What the data sheet knows of a named device is added, then all is held against one another."""
    known = datasheet.facts_about(kept)
    sources |= dict.fromkeys(known, "data sheet")
    kept |= known
    notes += plausibility.correct(kept)
    sources = {key: sources[key] for key in kept}
    return FactsRead(evidence=Evidence(**kept, sources=sources), notes=tuple(notes))


def facts_of(evidence: Evidence) -> dict[str, Any]:
    """The known facts of evidence as a facts file holds them."""
    known = {key: getattr(evidence, key) for key in FACT_KEYS}
    facts = {key: value for key, value in known.items() if value is not None}
    if evidence.decode_tok_s_at_depth is not None:
        facts["decode_tok_s_at_depth"] = [list(point) for point in evidence.decode_tok_s_at_depth]
    return facts


def _source(key: str, estimated: Collection[str]) -> Source:
    if key in estimated:
        return "estimated"
    return "data sheet" if key == "gpu_bandwidth_bytes_s" else "reported"


# --- one value -----------------------------------------------------------------------------------


class _BadValueError(Exception):
    """What is wrong with a value."""


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _BadValueError(f"expected a number, got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _BadValueError("expected a finite number")
    if number < 0:
        raise _BadValueError(f"{_shown(value)} is negative; leave the key out if it is not known")
    if number > _LARGEST or 0 < number < _SMALLEST:
        raise _BadValueError(f"{_shown(value)} is no figure of this world")
    return number


def _count(value: object) -> int:
    number = _number(value)
    if number != int(number) or number > _MAX_COUNT:
        raise _BadValueError(f"expected a whole number up to {_MAX_COUNT:.0e}, got {_shown(value)}")
    return int(number)


def _layers_requested(value: object) -> int:
    """-1 stands for all layers."""
    return -1 if value == -1 and not isinstance(value, bool) else _count(value)


def _at_least_one(value: object) -> int:
    number = _count(value)
    if number == 0:
        raise _BadValueError("0 is not possible; leave the key out if it is not known")
    return number


def _positive(value: object) -> float:
    number = _number(value)
    if number == 0:
        raise _BadValueError("0 is not possible; leave the key out if it is not known")
    return number


def _share(value: object) -> float:
    number = _number(value)
    if number > 1:
        raise _BadValueError(f"{_shown(value)} is no share from 0 to 1 (97 % is written 0.97)")
    return number


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _BadValueError(f"expected true or false, got {_shown(value)}")
    return value


def _words(value: object) -> str:
    if not isinstance(value, str):
        raise _BadValueError(f"expected a string, got {_shown(value)}")
    return clean(value, limit=120)


def _lower(value: object) -> str:
    return _words(value).lower()


def _depth_rates(value: object) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, list) or len(value) > _MAX_POINTS:
        raise _BadValueError("expected a list of [depth, tokens per second] pairs")
    points = []
    for point in value:
        if not isinstance(point, list) or len(point) != 2:
            raise _BadValueError(f"expected a [depth, tokens per second] pair, got {_shown(point)}")
        points.append((_count(point[0]), _positive(point[1])))
    depths = [depth for depth, _ in points]
    if len(set(depths)) != len(depths):
        raise _BadValueError("a depth is given twice")
    return tuple(sorted(points))


def _shown(value: object) -> str:
    text = clean(json.dumps(value, default=str))
    return text if len(text) <= 40 else f"{text[:40]}..."


_Reader = Callable[[object], Any]


def _all(reader: _Reader, names: str) -> dict[str, _Reader]:
    return dict.fromkeys(names.split(), reader)


_READERS: dict[str, _Reader] = {
    **_all(
        _count,
        "gpu_memory_used_bytes gpu_shared_memory_bytes remote_devices layers_on_gpu weights_on_cpu_bytes"
        " weights_on_gpu_bytes graph_splits n_prompt n_prompt_cached n_output sampler_top_k swap_in_bytes"
        " disk_read_bytes major_faults n_experts n_experts_used gpu_foreign_processes",
    ),
    **_all(
        _at_least_one,
        "model_bytes bytes_per_token n_layers gpu_memory_bytes n_gpus logical_cpus memory_bytes layers_total"
        " n_ctx n_batch n_ubatch threads",
    ),
    **_all(
        _positive,
        "gpu_bandwidth_bytes_s memory_bandwidth_bytes_s prefill_tok_s decode_tok_s"
        " gpu_clock_max_hz cpu_clock_max_hz",
    ),
    **_all(
        _number,
        "load_s tokenize_s prefill_s decode_s sampling_s total_s repeat_prefill_s repeat_load_s gpu_clock_hz"
        " cpu_clock_hz disk_read_bytes_s foreign_cpu",
    ),
    **_all(
        _share,
        "gpu_utilization gpu_memory_utilization cpu_utilization cpu_throttled_fraction file_cached_fraction"
        " gpu_foreign_utilization",
    ),
    **_all(
        _flag,
        "architecture_is_moe gpu_present unified_memory experts_on_cpu kv_on_cpu flash_attn speculative"
        " throttled",
    ),
    **_all(_words, "quantization gpu_name cpu_name"),
    **_all(_lower, "backend engine type_k type_v load_mode"),
    "n_gpu_layers_requested": _layers_requested,
    "usable_cpus": _positive,
    "decode_tok_s_at_depth": _depth_rates,
}

FACT_KEYS: tuple[str, ...] = tuple(
    field.name for field in dataclasses.fields(Evidence) if field.name in _READERS
)
"""The keys of a facts file, in the order of the record."""


def _unknown_key(key: str) -> str:
    near = difflib.get_close_matches(key, _READERS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(FACT_KEYS)}"
    return f"{clean(key, limit=60)!r} is no known fact; {hint}"


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        doubled = next(key for key in keys if keys.count(key) > 1)
        raise FactsError(f"{clean(doubled, limit=60)!r} is given twice")
    return values


def _no_constant(name: str) -> object:
    raise FactsError(f"{name} is no number; leave the key out if it is not known")
