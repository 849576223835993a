"""What was measured, one record a reading."""

from __future__ import annotations

import dataclasses
from typing import Literal

CellStatus = Literal["ok", "failed", "skipped"]
CacheState = Literal["cold", "warm", "partial", "unknown"]
"""How much of the file was in the page cache before a load: cold < 5 %, warm > 95 %."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """One load in a fresh process."""

    cache_state: CacheState
    cached_fraction: float | None
    """Share of the file in the page cache before; None when it can not be known."""
    open_ns: int
    """From the call to the first tensor: header, vocabulary, buffers."""
    tensors_ns: int
    context_ns: int
    first_touch_ns: int
    """The first single-token evaluation: pages that mmap left on disk are read here."""
    disk_read_bytes: int | None
    """Bytes this process read from storage during the load."""
    started_ns: int

    @property
    def total_ns(self) -> int:
        """All stages together, first touch included."""
        return self.open_ns + self.tensors_ns + self.context_ns + self.first_touch_ns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CellSample:
    """One pass over one cell."""

    pass_index: int
    """0 is the first pass in the process: kept and labelled."""
    started_ns: int
    head_ns: int
    """Whole chunks before the tail."""
    tail_ns: int
    """The last chunk, which asks for logits. 0 when the prompt is empty."""
    decode_ns: tuple[int, ...]
    """Each decode step, first step first."""
    disturbed: tuple[str, ...] = ()
    """What else took the machine while its pass ran: `foreign-cpu`, `steal`, `throttled`, `swap-in`. Empty:
    nothing, or the pass was too short to tell."""

    @property
    def prefill_ns(self) -> int:
        """The whole prompt: the micro-batches that a fresh prompt of this length runs."""
        return self.head_ns + self.tail_ns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One prompt length of a load group."""

    prompt_tokens: int
    """0: decode at an empty cache."""
    output_tokens: int
    status: CellStatus
    reason: str | None
    """Why it is failed or skipped: a code, then words: `budget: ...`, `crash: ...`, `memory: ...`."""
    samples: tuple[CellSample, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PassSample:
    """One walk over the lengths, as a whole."""

    pass_index: int
    started_ns: int
    wall_ns: int
    engine_ns: int
    """Time inside engine calls; wall minus engine is our own cost."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeSample:
    """Tokenizing a text of about one cell's prompt."""

    prompt_tokens: int
    """Of the cell."""
    text_bytes: int
    duration_ns: int
    evaluated_tokens: int | None = None
    """Tokens that came out: text and tokens do not always convert back one to one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSample:
    """One draw of the next token from ready logits."""

    chain: Literal["default", "greedy"]
    duration_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """One whole request run as a user's would be, each part timed, the wall around all of it."""

    prompt_tokens: int
    output_tokens: int
    tokenize_ns: int
    prefill_ns: int
    decode_ns: int
    sampling_ns: int
    ttft_ns: int
    """From the text to the first sampled token, the load not included."""
    wall_ns: int
    cached_tokens: int = 0
    """Of the prompt, in the cache before the request began: not evaluated, not timed."""

    @property
    def unaccounted_ns(self) -> int:
        """Wall minus the phases."""
        return self.wall_ns - self.tokenize_ns - self.prefill_ns - self.decode_ns - self.sampling_ns


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Where the time of an evaluation of a split model goes: of one that is watched and waits at the borders,
    and of the same one without."""

    tokens: int
    """1: a decode step; more: a prompt's first micro-batch."""
    position_tokens: int
    """Tokens in the cache before."""
    host_ns: int
    """What the host computes."""
    host_layers: int
    """Repeating layers that the host computes."""
    device_ns: int
    """On devices, from their first operation until the last layer is done and has been waited for."""
    device_layers: int
    first_device_layer_ns: int | None = None
    """On devices, from their first operation until the first layer that ends there has been waited for."""
    layers_behind_first: int = 0
    """Layers on devices that follow that one."""
    output_ns: int = 0
    """On devices, from when the last layer has been waited for until the end: the output layer, and sending
    for it anew."""
    crossing_ns: int = 0
    """Moving what the devices' first operation needs, from when the host has computed it."""
    watched_ns: int | None = None
    """The evaluation as a whole, watched: the questions between the operations left out."""
    whole_ns: tuple[int, ...] = ()
    """The evaluation as a whole, not watched, at about the same time and depth."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestRound:
    """One round over small models of known work, all of them in turn."""

    decode_ns: tuple[int, ...]
    """Steps of the single model."""
    doubled_decode_ns: tuple[int, ...]
    """Steps of the one with twice the layers, at the same depths."""
    walk_prefill_ns: dict[str, int]
    """Prompt length in tokens -> prefill, all lengths from one walk."""
    fresh_prefill_ns: dict[str, int]
    """The same lengths, each evaluated alone in a process of its own."""
    request: RequestSample
