"""The wait of one request, part by part, out of times, rates and counts that may each be missing."""

from __future__ import annotations

import dataclasses

from reports.evidence import Evidence

_SAME = 0.05
"""Two sums of times that differ by no more than this share are taken for the same: tools round and
overlap."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds of each part of the wait; None: not known."""

    load_s: float | None
    """0 where the model was in memory already."""
    tokenize_s: float | None
    prefill_s: float | None
    decode_s: float | None
    sampling_s: float | None
    unaccounted_s: float | None
    """The total minus the parts; None unless the total, prefill and decode are known."""

    @property
    def parts(self) -> dict[str, float]:
        """The known parts by name, in the order they happen."""
        named = {
            "load": self.load_s,
            "tokenize": self.tokenize_s,
            "prefill": self.prefill_s,
            "decode": self.decode_s,
            "sampling": self.sampling_s,
            "unaccounted": self.unaccounted_s,
        }
        return {name: seconds for name, seconds in named.items() if seconds is not None}

    @property
    def total_s(self) -> float:
        """The known parts together."""
        return sum(self.parts.values())

    @property
    def compute_s(self) -> float:
        """Prefill and decode, as far as they are known."""
        return (self.prefill_s or 0.0) + (self.decode_s or 0.0)

    def share(self, part: str) -> float | None:
        """A part's share of the known wait; None where the part is unknown or nothing was waited for."""
        return self.parts[part] / self.total_s if part in self.parts and self.total_s > 0 else None


def waits_of(evidence: Evidence) -> Waits:
    """Each part as timed, else from its rate and count."""
    prefill_s, decode_s = _prefill_s(evidence), _decode_s(evidence)
    load_s = _load_s(evidence, prefill_s, decode_s)
    return Waits(
        load_s=load_s,
        tokenize_s=evidence.tokenize_s,
        prefill_s=prefill_s,
        decode_s=decode_s,
        sampling_s=evidence.sampling_s,
        unaccounted_s=_unaccounted_s(evidence, load_s, prefill_s, decode_s),
    )


def _prefill_s(evidence: Evidence) -> float | None:
    if evidence.prefill_s is not None:
        return evidence.prefill_s
    if evidence.n_evaluated is None or not evidence.prefill_tok_s:
        return None
    return evidence.n_evaluated / evidence.prefill_tok_s


def _decode_s(evidence: Evidence) -> float | None:
    if evidence.decode_s is not None:
        return evidence.decode_s
    if evidence.n_output is None or not evidence.decode_tok_s:
        return None
    # The first token comes out of the prompt pass.
    return max(evidence.n_output - 1, 0) / evidence.decode_tok_s


def _load_s(evidence: Evidence, prefill_s: float | None, decode_s: float | None) -> float | None:
    """The load that is part of this wait.

    llama.cpp's own "load time" runs on until the first synchronization and so contains the first evaluation.
    Where load and phases exceed the printed total and the load is long enough to hold the prompt pass, that
    pass is taken out of it.
    """
    if evidence.start == "loaded":
        return 0.0
    load_s = evidence.load_s
    if load_s is None or prefill_s is None or decode_s is None or evidence.total_s is None:
        return load_s
    is_over = load_s + prefill_s + decode_s > evidence.total_s * (1 + _SAME)
    return load_s - prefill_s if is_over and load_s >= prefill_s else load_s


def _unaccounted_s(
    evidence: Evidence, load_s: float | None, prefill_s: float | None, decode_s: float | None
) -> float | None:
    """What no part explains. A total that has no room for the load was printed without it."""
    if evidence.total_s is None or prefill_s is None or decode_s is None:
        return None
    rest = evidence.total_s - prefill_s - decode_s - (evidence.tokenize_s or 0.0)
    rest -= evidence.sampling_s or 0.0
    with_load = rest - (load_s or 0.0)
    return max(0.0, with_load if with_load >= -_SAME * evidence.total_s else rest)
