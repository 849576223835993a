"""A scripted engine and clock: the whole program runs on them in its real processes, with no model.

The engine is chosen with LLMPHASE_ENGINE=fakes:scripted (or `fakes:sleeping`) and reads its script,
a JSON object, from LLMPHASE_SCRIPT. Costs are exact, so tests know each figure they should find:

    prefill(position, count) = count * prefill_ns + slope_ns * (position + ... + position + count - 1)
    decode(depth)            = decode_ns + depth * depth_ns
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from probes.engine import EngineError, OpenTimes
from probes.records import DeviceFacts, EngineFacts, Placement, Resolved, Settings

_PAGE_BYTES = 4096
SCRIPT_VARIABLE = "LLMPHASE_SCRIPT"
MIB = 1024 * 1024
_LAYERS = 5
"""Of the scripted model, the output layer counting as one."""


@dataclasses.dataclass(frozen=True)
class ObservedNode:
    """One node of a scripted graph."""

    name: str
    on_host: bool | None
    took_ns: int
    computed_ns: int | None = None


@dataclasses.dataclass(kw_only=True)
class Script:
    """What the scripted engine costs and how it fails."""

    open_ns: int = 20_000_000
    tensors_ns: int = 100_000_000
    context_ns: int = 10_000_000
    prefill_ns: int = 1_000_000
    """Per prompt token at position 0."""
    slope_ns: int = 0
    """More per prompt token for each token before it."""
    decode_ns: int = 5_000_000
    depth_ns: int = 1_000
    """More per decode step for each token of depth."""
    logits_ns: int = 0
    """More for each batch that asks for logits."""
    tokenize_ns: int = 2_000_000
    sample_ns: int = 50_000
    first_pass_factor: float = 1.0
    """The first evaluation of each shape costs this much more."""
    chunk_tokens: int = 512
    recurrent: bool = False
    backend: str = "CPU"
    """Name of its only device."""
    device_free_bytes: int = 4096 * MIB
    gpu_layers: int = 0
    """Of five, the output layer counting as one, on the device ..."""
    device_share: float = 0.1
    """... where a layer, or the output, takes this share of what a layer takes on the host."""
    crossing_ns: int = 0
    """Of an evaluation, the way from the host to the device."""
    watching_ns: int = 0
    """What an observed evaluation takes more for each layer there."""
    buffers: list[str] = dataclasses.field(default_factory=lambda: ["CPU"])
    warnings: list[str] = dataclasses.field(default_factory=list)
    fail_load: str | None = None
    fail_context: str | None = None
    fail_observed: str | None = None
    """The context that tells its parts can not be made."""
    fail_at_position: int | None = None
    """An evaluation that begins here fails and is told."""
    crash_at_position: int | None = None
    """An evaluation of more than one token that begins here or later ends the process ..."""
    crash_signal: str = "SIGSEGV"
    """... with this signal."""
    crash_only_repacked: bool = False
    garbage_at_position: int | None = None
    """An evaluation that begins here writes on the protocol pipe ..."""
    garbage: str = "no message\n"
    """... this, so many times."""
    garbage_times: int = 1
    hang_at_position: int | None = None
    """An evaluation of more than one token that begins here never ends."""
    hang_in_load: bool = False
    crash_in_load: bool = False
    allocate_at_position: int | None = None
    """An evaluation of more than one token that begins here or later takes this much memory."""
    allocate_bytes: int = 0
    only_once: str | None = None
    """A file's name: garbage, hangs and crashes happen while it is not there, and make it."""
    mute_vocabulary: bool = False
    """Of any text it makes one token."""
    log_loads: str | None = None
    """A file's name: each load adds a character to it."""
    no_template: bool = False
    print_noise: bool = False
    """Print on standard output at each evaluation, as native libraries do."""


def script_from_environment() -> Script:
    return Script(**json.loads(os.environ.get(SCRIPT_VARIABLE, "{}")))


class FakeClock:
    """Stands still until something advances it."""

    def __init__(self) -> None:
        self.time_ns = 1_000_000_000

    def now_ns(self) -> int:
        return self.time_ns

    def advance(self, duration_ns: int) -> None:
        self.time_ns += duration_ns


class SleepingClock:
    """The real clock; advancing it takes that long."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def advance(self, duration_ns: int) -> None:
        end_ns = time.perf_counter_ns() + duration_ns
        time.sleep(max(0, duration_ns - 200_000) / 1e9)
        while time.perf_counter_ns() < end_ns:
            pass


class ScriptedEngine:
    """Implements `probes.engine.Engine` by a script, and records the calls it gets."""

    def __init__(self, script: Script, advance: Callable[[int], None]) -> None:
        self.script = script
        self._advance = advance
        self.calls: list[tuple[Any, ...]] = []
        self.cached_tokens = 0
        self._other_cached_tokens = 0
        self._is_observed = False
        self._saved_tokens: int | None = None
        self._tokens: list[int] = []
        self._shapes: set[tuple[int, bool]] = set()
        self._settings: Settings | None = None

    def facts(self) -> EngineFacts:
        kind = "cpu" if self.script.backend == "CPU" else "gpu"
        return EngineFacts(
            version="scripted 1",
            commit="abc1234",
            system_info="CPU : AVX2 = 1",
            devices=(
                DeviceFacts(
                    name=self.script.backend,
                    description="scripted device",
                    kind=kind,  # type: ignore[arg-type]
                    memory_total_bytes=8192 * MIB,
                    memory_free_bytes=self.script.device_free_bytes,
                ),
            ),
            supports_gpu_offload=False,
            supports_mmap=True,
            supports_mlock=True,
            supports_rpc=False,
        )

    def connect(self, servers: Sequence[str]) -> None:
        self.calls.append(("connect", *servers))

    def open_model(self, path: str, settings: Settings, progress: Callable[[float], None]) -> OpenTimes:
        self.calls.append(("open_model", path))
        self._settings = settings
        if self.script.log_loads is not None:
            with Path(self.script.log_loads).open("a") as log:
                log.write(".")
        if self.script.hang_in_load:
            time.sleep(3600)
        if self.script.crash_in_load and self._may_misbehave():
            os.kill(os.getpid(), signal.SIGKILL)
        if self.script.fail_load:
            raise EngineError(self.script.fail_load, reason="load")
        self._advance(self.script.open_ns)
        progress(0.0)
        self._advance(self.script.tensors_ns)
        progress(1.0)
        return OpenTimes(open_ns=self.script.open_ns, tensors_ns=self.script.tensors_ns)

    def reserve(self, path: str, settings: Settings) -> tuple[Placement, ...]:
        self.calls.append(("reserve", path, settings))
        return ()

    def open_vocabulary(self, path: str) -> None:
        self.calls.append(("open_vocabulary", path))

    def chat_text(self, messages: Sequence[tuple[str, str]]) -> str:
        if self.script.no_template:
            raise EngineError("this model has no chat template: leave out --chat", reason="no-template")
        return " ".join(f"<{role}> {content}" for role, content in messages) + " <answer>"

    def open_context(self, settings: Settings) -> None:
        self.calls.append(("open_context", settings.n_ctx))
        if self.script.fail_context:
            raise EngineError(self.script.fail_context, reason="context")
        self._advance(self.script.context_ns)

    def open_observed_context(self, settings: Settings) -> None:
        self.calls.append(("open_observed_context", settings.n_ctx))
        if self.script.fail_observed:
            raise EngineError(self.script.fail_observed, reason="context")
        self.cached_tokens = self._other_cached_tokens = 0
        self._is_observed = False

    def use_observed_context(self, is_used: bool) -> None:
        self.calls.append(("use_observed_context", is_used))
        if is_used != self._is_observed:
            self._is_observed = is_used
            self.cached_tokens, self._other_cached_tokens = self._other_cached_tokens, self.cached_tokens

    def run_observed(self, batch: tuple[int, int, bool], wait_after: Collection[int]) -> list[ObservedNode]:
        """Two nodes a layer and the output, of which the last of each piece takes what the piece costs:
        together what the evaluation costs, and what watching does."""
        assert self._is_observed
        self.run(batch)
        script, whole_ns = self.script, self._cost_ns(*batch)
        on_host = _LAYERS - script.gpu_layers
        there = _LAYERS - 1 - on_host
        names = [f"{kind}-{layer}" for layer in range(_LAYERS - 1) for kind in ("Kcur", "l_out")]
        nodes = [ObservedNode(name, index // 2 < on_host, 1000) for index, name in enumerate(names)]
        nodes.append(ObservedNode("result_output", False, 1000))
        layer_ns = (whole_ns - script.crossing_ns) / (on_host + script.device_share * (there + 1))
        host_ns, output_ns = round(layer_ns * on_host), round(layer_ns * script.device_share)
        device_ns = whole_ns - script.crossing_ns - host_ns - output_ns + there * script.watching_ns
        self._advance(there * script.watching_ns)
        border = 2 * on_host - 1
        nodes[border] = dataclasses.replace(
            nodes[border],
            took_ns=host_ns + script.crossing_ns,
            computed_ns=host_ns if border in wait_after else None,
        )
        left_ns = device_ns + output_ns
        for index in sorted(set(wait_after) - {border}):
            done_ns = device_ns * (index // 2 + 1 - on_host) // there - (device_ns + output_ns - left_ns)
            nodes[index] = dataclasses.replace(nodes[index], took_ns=done_ns, computed_ns=done_ns)
            left_ns -= done_ns
        nodes[-1] = dataclasses.replace(nodes[-1], took_ns=left_ns)
        return nodes

    def resolved(self) -> Resolved:
        assert self._settings is not None
        return Resolved(
            n_gpu_layers=self.script.gpu_layers,
            layers_total=_LAYERS,
            n_ctx=self._settings.n_ctx,
            n_batch=self._settings.n_batch,
            n_ubatch=self._settings.n_ubatch,
            threads=self._settings.threads,
            threads_batch=self._settings.threads_batch,
            flash_attn="enabled",
            graph_splits=1,
            graph_nodes=100,
            cache_cut="state" if self.script.recurrent else "remove",
            chunk_tokens=self.script.chunk_tokens,
            placements=tuple(
                Placement(
                    buffer=name,
                    model_bytes=100 * MIB,
                    kv_bytes=10 * MIB,
                    compute_bytes=5 * MIB,
                    output_bytes=1 * MIB,
                )
                for name in self.script.buffers
            ),
            backend=self.script.backend,
        )

    def log_warnings(self) -> tuple[str, ...]:
        return tuple(self.script.warnings)

    def tokenize(self, text: bytes, *, special: bool = False) -> list[int]:
        self.calls.append(("tokenize", special))
        self._advance(self.script.tokenize_ns)
        if self.script.mute_vocabulary:
            return [1]
        return [sum(word) % 1000 for word in text.split()]

    def text_of(self, tokens: Sequence[int]) -> bytes:
        return b" ".join(b"w%d" % (index + token) for index, token in enumerate(tokens))

    def random_tokens(self, count: int, seed: int) -> list[int]:
        return [(seed + index) % 1000 for index in range(count)]

    def set_tokens(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)

    def put_token(self, position: int, token: int) -> None:
        self._tokens[position] = token

    def batch(self, start: int, count: int, *, logits: bool) -> tuple[int, int, bool]:
        assert 0 <= start < start + count <= len(self._tokens), (start, count, len(self._tokens))
        return start, count, logits

    def run(self, batch: tuple[int, int, bool]) -> None:
        start, count, logits = batch
        self.calls.append(("run", start, count, logits))
        assert start == self.cached_tokens, f"evaluates at {start}, the cache holds {self.cached_tokens}"
        self._misbehave(start, count)
        self._advance(self._cost_ns(start, count, logits))
        self.cached_tokens += count

    def _cost_ns(self, start: int, count: int, logits: bool) -> int:
        script = self.script
        cost = script.logits_ns if logits else 0
        if count == 1:
            cost += script.decode_ns + start * script.depth_ns
        else:
            cost += count * script.prefill_ns + script.slope_ns * sum(range(start, start + count))
        shape = (count, logits)
        if shape not in self._shapes:
            self._shapes.add(shape)
            cost = round(cost * script.first_pass_factor)
        return cost

    def _misbehave(self, start: int, count: int) -> None:
        script = self.script
        if script.print_noise:
            os.write(1, b"noise from a native library\n")
        if count == 1:
            return
        if start == script.fail_at_position:
            raise EngineError("the engine failed to evaluate (scripted)", reason="decode")
        if start == script.garbage_at_position and self._may_misbehave():
            _write_garbage(script.garbage.encode(), script.garbage_times)
        if script.allocate_at_position is not None and start >= script.allocate_at_position:
            block = bytearray(script.allocate_bytes)
            block[::_PAGE_BYTES] = bytes(len(range(0, len(block), _PAGE_BYTES)))  # so that it is really taken
        if start == script.hang_at_position and self._may_misbehave():
            time.sleep(3600)
        if script.crash_at_position is not None and start >= script.crash_at_position:
            assert self._settings is not None
            if (not script.crash_only_repacked or self._settings.repack) and self._may_misbehave():
                os.kill(os.getpid(), signal.Signals[script.crash_signal])
                time.sleep(5)

    def _may_misbehave(self) -> bool:
        if self.script.only_once is None:
            return True
        try:
            os.close(os.open(self.script.only_once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def clear(self) -> None:
        self.calls.append(("clear",))
        self.cached_tokens = 0

    def save(self, position: int) -> None:
        assert position == self.cached_tokens
        self.calls.append(("save", position))
        self._saved_tokens = position

    def restore(self, position: int) -> None:
        self.calls.append(("restore", position))
        if position:
            assert position == self._saved_tokens
        assert position <= self.cached_tokens
        self.cached_tokens = position

    def sample(self, chain: str) -> int:
        self._advance(self.script.sample_ns * (2 if chain == "default" else 1))
        return 7

    def close(self) -> None:
        self.calls.append(("close",))


def _write_garbage(text: bytes, times: int) -> None:
    for descriptor in range(3, 20):  # the worker keeps the pipe under one of these numbers
        try:
            if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                continue
            for _ in range(times):
                os.write(descriptor, text)
        except OSError:
            continue


def scripted() -> tuple[ScriptedEngine, FakeClock]:
    """Costs are told, not spent: tests take no time."""
    clock = FakeClock()
    return ScriptedEngine(script_from_environment(), clock.advance), clock


def sleeping() -> tuple[ScriptedEngine, SleepingClock]:
    """Costs are really spent: for budgets, interruptions and displays."""
    clock = SleepingClock()
    return ScriptedEngine(script_from_environment(), clock.advance), clock
