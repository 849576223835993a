"""From a request of a log, its load and what is given beside it, to evidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from probes.records import ModelFacts
from reports.evidence import Evidence, Source
from reports.facts import FactsRead, evidence_from, lenient_evidence, parse_facts
from reports.log_trend import is_cached_count
from reports.logs import Request
from reports.run_evidence import header_facts
from reports.text import clean
from reports.units import duration, size

_SAME_SIZE = 0.1
"""A file and a log that differ by more than this tell of two models; tools count tensors or the whole
file."""
_ESTIMATED = frozenset({"bytes_per_token"})
"""Facts that a log does not state and that its parser works out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is known beside a log or a facts file; None: nothing."""

    gpu_name: str | None = None
    memory_bandwidth_bytes_s: float | None = None
    model: ModelFacts | None = None
    """Of the model file that was run."""


def request_evidence(request: Request, given: Given) -> FactsRead:
    """Evidence of one request; what is left out or put right is remarked. Never raises for what a log
    says."""
    load = {name: value for name, value in request.load.facts.items() if not name.startswith("_")}
    facts: dict[str, Any] = load | request.facts
    if facts.get("layers_on_gpu") == 0 and "backend" not in facts:
        facts["backend"] = "cpu"
    sources: dict[str, Source] = dict.fromkeys(_ESTIMATED & facts.keys(), "estimated")
    notes = [*request.notes, *add_given(facts, sources, given)]
    read = lenient_evidence(facts, sources)
    return FactsRead(evidence=read.evidence, notes=(*notes, *read.notes))


def facts_evidence(text: str, given: Given) -> FactsRead:
    """Evidence from the text of a facts file, with what is given beside it. Raises FactsError."""
    facts = parse_facts(text)
    sources: dict[str, Source] = {}
    notes = tuple(add_given(facts, sources, given))
    read = evidence_from(facts)
    kept = {name: source for name, source in sources.items() if name in read.evidence.sources}
    evidence = dataclasses.replace(read.evidence, sources={**read.evidence.sources, **kept})
    return FactsRead(evidence=evidence, notes=(*notes, *read.notes))


def add_given(facts: dict[str, Any], sources: dict[str, Source], given: Given) -> Iterator[str]:
    """Add, in place, what the person said; it counts more than what a log says of the same. Remarks."""
    if given.gpu_name is not None:
        if facts.get("gpu_name") not in (None, given.gpu_name):
            # Figures of the device that the log names are not this one's.
            facts.pop("n_gpus", None)
        facts |= {"gpu_name": given.gpu_name, "gpu_present": True}
        sources |= {"gpu_name": "reported", "gpu_present": "reported"}
    if given.memory_bandwidth_bytes_s is not None:
        facts["memory_bandwidth_bytes_s"] = given.memory_bandwidth_bytes_s
        sources["memory_bandwidth_bytes_s"] = "reported"
    if given.model is not None:
        problem = _other_model(facts, given.model)
        if problem:
            yield problem
            return
        header = {name: value for name, value in header_facts(given.model).items() if value is not None}
        facts |= header
        sources |= dict.fromkeys(header, "header")


def _other_model(facts: dict[str, Any], model: ModelFacts) -> str | None:
    """What tells that the file is not the one that was run."""
    told, total = facts.get("n_layers"), facts.get("layers_total")
    layers = told if told is not None else total - 1 if isinstance(total, int) else None
    name = clean(model.name, limit=60)
    if layers is not None and model.n_layers and layers != model.n_layers:
        return f"{name} has {model.n_layers} layers and the log's model {layers}: its header is not used"
    logged = facts.get("model_bytes")
    if isinstance(logged, int) and abs(logged - model.model_bytes) > _SAME_SIZE * logged:
        return (
            f"{name} holds {size(model.model_bytes)} of weights and the log's model {size(logged)}: its"
            " header is not used"
        )
    return None


def compared(reads: Sequence[FactsRead]) -> tuple[FactsRead, ...]:
    """Requests of one series with what only their neighbours tell: counts that include the cache, a load that
    comes again."""
    found: list[FactsRead] = []
    for index, read in enumerate(reads):
        evidence, notes = read.evidence, list(read.notes)
        if index and is_cached_count(reads[index - 1].evidence, evidence):
            evidence = dataclasses.replace(
                evidence, prefill_tok_s=None, sources=_without(evidence, "prefill_tok_s")
            )
            notes.append("a part of its prompt was likely cached though it is counted: no rate is told")
        evidence = _with_repeats(evidence, [other.evidence for other in reads[index + 1 : index + 2]])
        found.append(FactsRead(evidence=evidence, notes=tuple(notes)))
    return tuple(found)


def _without(evidence: Evidence, name: str) -> dict[str, Source]:
    return {key: source for key, source in evidence.sources.items() if key != name}


def _with_repeats(evidence: Evidence, following: Sequence[Evidence]) -> Evidence:
    """The next request's load says whether the model stays loaded."""
    if not following or evidence.load_s is None or following[0].load_s is None:
        return evidence
    sources: dict[str, Source] = dict(evidence.sources) | {"repeat_load_s": "log"}
    return dataclasses.replace(evidence, repeat_load_s=following[0].load_s, sources=sources)


def missing(request: Request, evidence: Evidence) -> tuple[str, ...]:
    """What this source could have told and this log does not, and where to get it."""
    absent = [name for name in request.expected if getattr(evidence, name) is None]
    said = [f"Not found in the log: {', '.join(absent)}."] if absent else []
    placement = ("layers_on_gpu", "weights_on_gpu_bytes", "weights_on_cpu_bytes")
    if evidence.has_gpu is not False and len(evidence.missing(*placement)) == len(placement):
        said.append(
            "Where the weights lie is not told: put the lines that the loader prints (`offloaded 20/33 layers"
            " to GPU`, buffer sizes) before the timings, and name the device and the model: --gpu, --model."
        )
    return tuple(said)


def wait_text(seconds: float) -> str:
    """The wait, as far as it is known, for a table."""
    return duration(seconds) if seconds > 0 else "unknown"
