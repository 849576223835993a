"""What parent and worker say to each other: one JSON object a line, each a record.

Commands go to the worker's standard input, events come back on its own pipe. A line names its
record in the key `is`; anything else is an error of the side that wrote it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, TypeVar

from probes.codec import decode, encode
from probes.errors import LlmphaseError, UnmeasurableError
from probes.records import (
    CellSample,
    DeviceCeiling,
    DeviceMemory,
    EngineFacts,
    LinkFacts,
    MatrixShape,
    ModelFacts,
    PassSample,
    Placement,
    RequestSample,
    Resolved,
    SamplingSample,
    Settings,
    StepParts,
    TokenizeSample,
)

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is refused: nothing that is said here comes near it."""


# Commands


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskFacts:
    """Report the engine as installed."""

    servers: tuple[str, ...] = ()
    """`host:port` of machines whose devices are to be listed too."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Count the tokens of a prompt with the model's vocabulary alone; no weights are loaded."""

    path: str
    prompt: str
    system: str | None
    chat: bool
    """Apply the model's chat template."""
    prefix: str | None
    """A text whose tokens a runtime has in its cache already."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load a model to a usable context and lay tokens ready."""

    model: ModelFacts
    settings: Settings
    tokens: Literal["text", "random"]
    seed: int
    max_tokens: int
    """Longest position that will be evaluated, plus one."""
    warm_up: bool
    """Settle decode (and on devices prefill) after the first touch; a load that is only timed needs none."""
    prompt: str | None = None
    """The user's own prompt, laid ready instead of `tokens`; what is longer goes on with text."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Find out what a load would reserve for computing, without loading weights."""

    path: str
    settings: Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunPass:
    """Walk once over the lengths."""

    pass_index: int
    lengths: tuple[int, ...]
    output_tokens: int
    time_left_ns: int
    """No engine call is begun that would likely end later."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunBeside:
    """Time what stands beside the phases: tokenizing, sampling, and one whole request."""

    lengths: tuple[int, ...]
    repetitions: int
    request_prompt_tokens: int | None
    """None: no whole request."""
    request_output_tokens: int
    request_cached_tokens: int = 0
    turn_ns: int | None = None
    """The request pauses after each turn, and goes on when asked to."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """Go on with the request that paused."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """Time the parts of a split model. Nothing else can be measured on this load afterwards."""

    prompt_tokens: int
    time_left_ns: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasureCeilings:
    """Find out what the devices could do at most; no model is loaded."""

    shapes: tuple[MatrixShape, ...]
    threads: int
    batch_tokens: int
    """Columns of the other factor in matrix-matrix products: the micro-batch."""
    weight_buffers: tuple[str, ...]
    """Buffer types in which the measured run had its weights."""
    memory_bytes: int | None
    """Memory that may be used."""
    servers: tuple[str, ...] = ()
    """`host:port` of machines whose devices are measured too."""
    formats: tuple[str, ...] = ()
    """ggml types to measure where there is no model."""
    other_shapes: tuple[MatrixShape, ...] = ()
    """What the model would have in other quantizations."""
    other_buffers: tuple[str, ...] = ()
    """Buffer types in which they would lie."""
    other_threads: tuple[int, ...] = ()
    """With which the CPU is measured once more."""
    budget_s: float = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLink:
    """Find out how fast the way to an RPC server is; no model is loaded."""

    server: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quantize:
    """Make a file of another type from a model; see `probes.quantizing`."""

    source: str
    target: str
    file_type: int
    threads: int
    requantize: bool
    """Take a source that is quantized already."""
    trial: bool
    """Only find out what would come of it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TakeSeat:
    """What follows is for the engine with this number, which begins with the first mention. It needs no
    answer."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quit:
    """Free everything and end."""


# Events


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Answer to AskFacts; also sent by itself after a load."""

    engine: EngineFacts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Answer to Prepare."""

    text: str
    """The prompt as the model gets it, chat template applied."""
    tokens: int
    cached_tokens: int
    """Tokens at its beginning that are those of the prefix."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """Share of the weights loaded, 0 to 1."""

    share: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The load is done."""

    open_ns: int
    tensors_ns: int
    context_ns: int
    first_touch_ns: int
    started_ns: int
    disk_read_bytes: int | None
    resolved: Resolved
    engine_warnings: tuple[str, ...]
    peak_memory_bytes: int | None
    step_ns: int | None = None
    """One decode step once it has settled; None without a warm-up."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepBegins:
    """A timed call is about to begin; sent twice a second at the most."""

    phase: str
    prompt_tokens: int
    position_tokens: int
    tokens_per_s: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CellMeasured:
    """One length of the pass is done."""

    prompt_tokens: int
    sample: CellSample


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PassDone:
    """The pass is over; `not_reached` did not fit into the time left."""

    sample: PassSample
    not_reached: tuple[int, ...]
    peak_memory_bytes: int | None
    device_memory: tuple[DeviceMemory, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BesideDone:
    """Answer to RunBeside and to GoOn."""

    tokenize: tuple[TokenizeSample, ...]
    sampling: tuple[SamplingSample, ...]
    requests: tuple[RequestSample, ...]
    is_paused: bool = False
    """The request is under way."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartsTimed:
    """Answer to RunParts."""

    parts: tuple[StepParts, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CeilingsMeasured:
    """Answer to MeasureCeilings."""

    ceilings: tuple[DeviceCeiling, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Answer to Reserve."""

    placements: tuple[Placement, ...]
    """Compute and output bytes alone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LinkMeasured:
    """Answer to MeasureLink."""

    link: LinkFacts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeProgress:
    """Share of the tensors done, 0 to 1."""

    share: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """Answer to Quantize."""

    tensor_bytes: int | None
    """None when the engine did not say."""
    needs_importance_matrix: bool
    """Of a trial: making the file would fail."""
    types: dict[str, str]
    """Tensor name -> ggml type name, of the tensors that change theirs. Untrusted names."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The command failed in a way that the worker survived."""

    reason: str
    message: str


Command = (
    AskFacts
    | Prepare
    | Load
    | Reserve
    | RunPass
    | RunBeside
    | GoOn
    | RunParts
    | MeasureCeilings
    | MeasureLink
    | Quantize
    | TakeSeat
    | Quit
)
Event = (
    Facts
    | Prepared
    | LoadProgress
    | Loaded
    | StepBegins
    | CellMeasured
    | PassDone
    | BesideDone
    | PartsTimed
    | CeilingsMeasured
    | Reserved
    | LinkMeasured
    | QuantizeProgress
    | Quantized
    | Failed
)

COMMANDS: tuple[type[Any], ...] = (
    AskFacts,
    Prepare,
    Load,
    Reserve,
    RunPass,
    RunBeside,
    GoOn,
    RunParts,
    MeasureCeilings,
    MeasureLink,
    Quantize,
    TakeSeat,
    Quit,
)
EVENTS: tuple[type[Any], ...] = (
    Facts,
    Prepared,
    LoadProgress,
    Loaded,
    StepBegins,
    CellMeasured,
    PassDone,
    BesideDone,
    PartsTimed,
    CeilingsMeasured,
    Reserved,
    LinkMeasured,
    QuantizeProgress,
    Quantized,
    Failed,
)

M = TypeVar("M")


class ProtocolError(UnmeasurableError):
    """The other side wrote something that is no message."""


def to_line(message: Command | Event) -> bytes:
    """One line of JSON in ASCII, newline included."""
    return json.dumps({"is": type(message).__name__} | encode(message)).encode("ascii") + b"\n"


def command_from_line(line: bytes) -> Command:
    """Raises ProtocolError."""
    return _from_line(line, COMMANDS)  # type: ignore[no-any-return]


def event_from_line(line: bytes) -> Event:
    """Raises ProtocolError."""
    return _from_line(line, EVENTS)  # type: ignore[no-any-return]


def _from_line(line: bytes, kinds: tuple[type[Any], ...]) -> Any:
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError("a message is too long", reason="protocol")
    try:
        value = json.loads(line)
        kind = next(kind for kind in kinds if kind.__name__ == value["is"])
        return decode(kind, value)
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError, LlmphaseError) as error:
        shown = line[:80].decode("ascii", "replace").strip()
        raise ProtocolError(f"not a message: {shown!r} ({error})", reason="protocol") from error
