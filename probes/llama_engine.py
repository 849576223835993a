"""llama.cpp through its Python bindings: the only module that imports `llama_cpp`.

Low-level calls only. The bindings' high-level class is never used: it reuses a cached prefix and
does not wait for the devices, so it can not be timed.
"""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import llama_cpp
from llama_cpp import llama_cpp as lib

from probes.engine import EngineError, OpenTimes
from probes.engine_log import parse_log
from probes.engine_placement import Placing
from probes.ggml_devices import engine_commit, list_devices
from probes.graph_observer import GraphObserver, ObservedNode
from probes.records import EngineFacts, Placement, Resolved, Settings

_FLASH = {"auto": -1, "off": 0, "on": 1}
_LOAD_MODES = {"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4}
_SPLIT_MODES = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
_WARN, _ERROR, _CONTINUE = 3, 4, 5
_LAST_ERRORS = 3
_DESCRIPTION_BYTES = 128
_CONTROL_ATTRIBUTES = 1 << 0 | 1 << 1 | 1 << 3
"""LLAMA_TOKEN_ATTR_UNKNOWN, _UNUSED and _CONTROL."""

CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q4_0": 2,
    "q4_1": 3,
    "iq4_nl": 20,
    "q5_0": 6,
    "q5_1": 7,
}
"""Cache types that llama.cpp's own tools accept, with their ggml numbers."""


class _Log:
    """Keeps the engine's log lines; the callback does as little as it can, since loads are timed."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.callback = lib.llama_log_callback(self._take)

    def _take(self, level: int, text: bytes, _user_data: Any) -> None:
        if level == _CONTINUE and self.lines:
            last_level, last = self.lines[-1]
            self.lines[-1] = (last_level, last + text.decode("utf-8", "replace"))
        else:
            self.lines.append((level, text.decode("utf-8", "replace")))

    def texts(self, at_least: int = 0) -> list[str]:
        return [text.strip() for level, text in self.lines if level >= at_least and text.strip()]


_LOG = _Log()
"""One for the whole process: the engine keeps the callback for good, also after an engine object has gone."""


class LlamaEngine:
    """One model, one context, one sequence (id 0). See `probes.engine.Engine`."""

    def __init__(self) -> None:
        self._log = _LOG
        lib.llama_log_set(_LOG.callback, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self._model: Any = None
        self._context: Any = None
        self._memory: Any = None
        self._observed_context: Any = None
        self._ordinary_context: Any = None
        """While there are two; `_context` is the one in use."""
        self._vocab: Any = None
        self._settings: Settings | None = None
        self._cut: str = "remove"
        self._state = (ctypes.c_uint8 * 0)()
        self._state_bytes = 0
        self._tokens = (lib.llama_token * 0)()
        self._positions = (lib.llama_pos * 0)()
        self._no_logits = (ctypes.c_int8 * 0)()
        self._samplers: dict[str, Any] = {}
        self._keep: list[Any] = []
        self._observer: GraphObserver | None = None

    def facts(self) -> EngineFacts:
        """See Engine."""
        return EngineFacts(
            version=f"llama-cpp-python {llama_cpp.__version__}",
            commit=engine_commit(),
            system_info=lib.llama_print_system_info().decode("utf-8", "replace").strip(),
            devices=list_devices(),
            supports_gpu_offload=bool(lib.llama_supports_gpu_offload()),
            supports_mmap=bool(lib.llama_supports_mmap()),
            supports_mlock=bool(lib.llama_supports_mlock()),
            supports_rpc=bool(lib.llama_supports_rpc()),
        )

    def connect(self, servers: Sequence[str]) -> None:
        """See Engine."""
        if servers:
            from probes.remote_devices import add_servers

            add_servers(servers)

    def open_model(self, path: str, settings: Settings, progress: Callable[[float], None]) -> OpenTimes:
        """See Engine. The first progress call marks the end of the open stage."""
        from time import perf_counter_ns

        first_progress_ns = 0

        def on_progress(share: float, _user_data: Any) -> bool:
            nonlocal first_progress_ns
            first_progress_ns = first_progress_ns or perf_counter_ns()
            progress(share)
            return True

        params = self._model_params(settings)
        callback = lib.llama_progress_callback(on_progress)
        params.progress_callback = callback
        self._log.lines.clear()
        name = _encoded(path)
        started_ns = perf_counter_ns()
        self._model = lib.llama_model_load_from_file(name, params)
        ended_ns = perf_counter_ns()
        if not self._model:
            raise EngineError(f"the engine can not load this model: {self._last_words()}", reason="load")
        self._keep.append(callback)
        self._vocab = lib.llama_model_get_vocab(self._model)
        self._settings = settings
        boundary_ns = first_progress_ns or ended_ns
        return OpenTimes(open_ns=boundary_ns - started_ns, tensors_ns=ended_ns - boundary_ns)

    def _model_params(self, settings: Settings) -> Any:
        """The engine's parameters for these settings. What they point to is kept as long as the engine."""
        params = lib.llama_model_default_params()
        if settings.n_gpu_layers is not None:
            params.n_gpu_layers = settings.n_gpu_layers
        params.load_mode = _LOAD_MODES[settings.load_mode]
        params.use_extra_bufts = settings.repack
        params.split_mode = _SPLIT_MODES[settings.split_mode]
        params.main_gpu = settings.main_gpu
        placing = Placing(settings, lib.llama_max_devices())
        params.devices = placing.devices
        params.tensor_buft_overrides = placing.overrides
        params.tensor_split = placing.split
        self._keep.append(placing)
        return params

    def open_vocabulary(self, path: str) -> None:
        """See Engine."""
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self._model = lib.llama_model_load_from_file(_encoded(path), params)
        if not self._model:
            raise EngineError(f"the engine can not read the vocabulary: {self._last_words()}", reason="load")
        self._vocab = lib.llama_model_get_vocab(self._model)

    def reserve(self, path: str, settings: Settings) -> tuple[Placement, ...]:
        """See Engine."""
        params = self._model_params(settings)
        params.no_alloc = True
        params.load_mode = _LOAD_MODES["none"]  # mapped weights would be read all the same
        self._log.lines.clear()
        self._model = lib.llama_model_load_from_file(_encoded(path), params)
        if not self._model:
            raise EngineError(f"the engine can not plan this load: {self._last_words()}", reason="load")
        try:
            self.open_context(settings)
            placements = parse_log(self._log.texts()).placements
        finally:
            self.close()
        return tuple(replace(place, model_bytes=0, kv_bytes=0) for place in placements if place.compute_bytes)

    def chat_text(self, messages: Sequence[tuple[str, str]]) -> str:
        """See Engine."""
        template = lib.llama_model_chat_template(self._model, None)
        if not template:
            raise EngineError("this model has no chat template: leave out --chat", reason="no-template")
        encoded = [(role.encode(), content.encode()) for role, content in messages]
        chat = (lib.llama_chat_message * len(encoded))(*encoded)
        room = 2 * sum(len(content) for _, content in encoded) + 4096
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = lib.llama_chat_apply_template(template, chat, len(encoded), True, buffer, room)
            if size < 0:
                message = "the engine does not know the form of this model's chat template: apply it yourself"
                raise EngineError(f"{message} and leave out --chat", reason="no-template")
            if size <= room:
                return buffer.raw[:size].decode("utf-8", "replace")
            room = size

    def open_context(self, settings: Settings) -> None:
        """See Engine."""
        self._open_context(self._context_params(settings), settings)

    def open_observed_context(self, settings: Settings) -> None:
        """See Engine. Results and caches of the earlier context are gone."""
        self._free_context()
        self._observer = GraphObserver()
        params = self._context_params(settings)
        params.cb_eval = self._observer.callback
        self._open_context(params, settings)
        self._observed_context, self._context = self._context, None
        self.open_context(settings)
        self._ordinary_context = self._context

    def use_observed_context(self, is_used: bool) -> None:
        """See Engine."""
        self._context = self._observed_context if is_used else self._ordinary_context
        self._memory = lib.llama_get_memory(self._context)

    def run_observed(self, batch: Any, wait_after: Collection[int]) -> Sequence[ObservedNode]:
        """See Engine."""
        assert self._observer is not None
        self._observer.begin(wait_after)
        self.run(batch)
        return self._observer.nodes(time.perf_counter_ns())

    def _context_params(self, settings: Settings) -> Any:
        params = lib.llama_context_default_params()
        params.n_ctx = settings.n_ctx
        params.n_batch = settings.n_batch
        params.n_ubatch = settings.n_ubatch
        params.n_threads = settings.threads
        params.n_threads_batch = settings.threads_batch
        params.flash_attn_type = _FLASH[settings.flash_attn]
        params.type_k = CACHE_TYPES[settings.type_k]
        params.type_v = CACHE_TYPES[settings.type_v]
        params.swa_full = settings.swa_full
        params.offload_kqv = settings.kv_offload
        params.op_offload = settings.op_offload
        return params

    def _open_context(self, params: Any, settings: Settings) -> None:
        self._context = lib.llama_init_from_model(self._model, params)
        if not self._context:
            raise EngineError(f"the engine can not make a context: {self._last_words()}", reason="context")
        self._memory = lib.llama_get_memory(self._context)
        if not self._memory:
            raise EngineError(
                "this model keeps no memory between tokens: it has no decode phase", reason="no-decode"
            )
        self._cut = self._how_to_cut(settings)

    def _how_to_cut(self, settings: Settings) -> str:
        """Sliding windows drop old cells as they move: positions removed there leave holes behind, so
        their state is restored as that of recurrent models is."""
        recurrent = lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
        window = lib.llama_model_n_swa(self._model) > 0 and not settings.swa_full
        return "state" if recurrent or window else "remove"

    def resolved(self) -> Resolved:
        """See Engine."""
        facts = parse_log(self._log.texts())
        # Without a device the log still says "offloaded N/N layers to GPU", so buffers have the last word.
        families = sorted(
            {_family(place.buffer) for place in facts.placements if place.model_bytes},
            key=lambda family: (family == "CPU", family),
        )
        return Resolved(
            n_gpu_layers=facts.layers_placed if set(families) - {"CPU"} else 0,
            layers_total=facts.layers_total,
            n_ctx=lib.llama_n_ctx(self._context),
            n_batch=lib.llama_n_batch(self._context),
            n_ubatch=lib.llama_n_ubatch(self._context),
            threads=lib.llama_n_threads(self._context),
            threads_batch=lib.llama_n_threads_batch(self._context),
            flash_attn=facts.flash_attn,
            graph_splits=facts.graph_splits,
            graph_nodes=facts.graph_nodes,
            cache_cut="state" if self._cut == "state" else "remove",
            chunk_tokens=self._chunk_tokens(families),
            placements=facts.placements,
            backend=",".join(families),
            description=self._description(),
        )

    def _description(self) -> str | None:
        text = ctypes.create_string_buffer(_DESCRIPTION_BYTES)
        length = lib.llama_model_desc(self._model, text, len(text))
        return text.value.decode("utf-8", "replace") if length > 0 else None

    def _chunk_tokens(self, families: Sequence[str]) -> int:
        """One micro-batch on the CPU; a whole batch where devices may overlap its micro-batches."""
        micro_batch = int(lib.llama_n_ubatch(self._context))
        return micro_batch if list(families) == ["CPU"] else int(lib.llama_n_batch(self._context))

    def log_warnings(self) -> tuple[str, ...]:
        """See Engine."""
        return tuple(dict.fromkeys(self._log.texts(at_least=_WARN)))

    def _last_words(self) -> str:
        """The engine's last errors, the cause first: the very last one often only says that it failed."""
        errors = list(dict.fromkeys(text.strip() for level, text in self._log.lines if level == _ERROR))
        return "; ".join(filter(None, errors[-_LAST_ERRORS:])) or "it gave no reason"

    def tokenize(self, text: bytes, *, special: bool = False) -> list[int]:
        """See Engine."""
        room = len(text) + 8
        tokens = (lib.llama_token * room)()
        count = lib.llama_tokenize(self._vocab, text, len(text), tokens, room, True, special)
        if count < 0:
            raise EngineError("the engine can not tokenize the prompt text", reason="tokenize")
        return list(tokens[:count])

    def text_of(self, tokens: Sequence[int]) -> bytes:
        """See Engine."""
        array = (lib.llama_token * len(tokens))(*tokens)
        room = 16 * len(tokens) + 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = lib.llama_detokenize(self._vocab, array, len(tokens), buffer, room, True, False)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def random_tokens(self, count: int, seed: int) -> list[int]:
        """See Engine."""
        draw = random.Random(seed)
        total = lib.llama_vocab_n_tokens(self._vocab)
        ordinary = [
            token
            for token in range(total)
            if not lib.llama_vocab_get_attr(self._vocab, token) & _CONTROL_ATTRIBUTES
        ]
        if not ordinary:
            raise EngineError("the vocabulary has no ordinary token", reason="tokenize")
        tokens = draw.choices(ordinary, k=count)
        if count and lib.llama_vocab_get_add_bos(self._vocab):
            tokens[0] = lib.llama_vocab_bos(self._vocab)
        return tokens

    def set_tokens(self, tokens: Sequence[int]) -> None:
        """See Engine."""
        count = len(tokens)
        self._tokens = (lib.llama_token * count)(*tokens)
        self._positions = (lib.llama_pos * count)(*range(count))
        self._no_logits = (ctypes.c_int8 * count)()

    def put_token(self, position: int, token: int) -> None:
        """See Engine."""
        self._tokens[position] = token

    def batch(self, start: int, count: int, *, logits: bool) -> Any:
        """See Engine. Only pointers into the arrays that `set_tokens` laid out: nothing is copied."""
        end = start + count
        if not 0 <= start < end <= len(self._tokens):
            raise IndexError(f"positions {start} to {end} of {len(self._tokens)} tokens")
        flags = self._no_logits
        if logits:
            flags = (ctypes.c_int8 * count)()
            flags[count - 1] = 1
        batch = lib.llama_batch(
            n_tokens=count,
            token=_pointer_at(self._tokens, start, lib.llama_token),
            pos=_pointer_at(self._positions, start, lib.llama_pos),
            logits=ctypes.cast(flags, ctypes.POINTER(ctypes.c_int8)),
        )
        batch.kept_alive = (flags, self._tokens, self._positions)
        return batch

    def run(self, batch: Any) -> None:
        """See Engine."""
        code = lib.llama_decode(self._context, batch)
        lib.llama_synchronize(self._context)
        if code:
            raise EngineError(_decode_failure(code, self._last_words()), reason="decode")

    def clear(self) -> None:
        """See Engine."""
        lib.llama_memory_clear(self._memory, False)

    def save(self, position: int) -> None:
        """See Engine."""
        if self._cut != "state" or position == 0:
            return
        size = lib.llama_state_seq_get_size(self._context, 0)
        if size > len(self._state):
            self._state = (ctypes.c_uint8 * size)()
        self._state_bytes = lib.llama_state_seq_get_data(self._context, self._state, size, 0)
        if not self._state_bytes:
            raise EngineError("the engine can not save the sequence state", reason="state")

    def restore(self, position: int) -> None:
        """See Engine."""
        if position == 0:
            self.clear()
            return
        if self._cut == "remove":
            if not lib.llama_memory_seq_rm(self._memory, 0, position, -1):
                raise EngineError("the engine can not cut the cache back", reason="state")
            return
        lib.llama_memory_seq_rm(self._memory, 0, -1, -1)
        if not lib.llama_state_seq_set_data(self._context, self._state, self._state_bytes, 0):
            raise EngineError("the engine can not restore the sequence state", reason="state")

    def sample(self, chain: str) -> int:
        """See Engine."""
        if chain not in self._samplers:
            self._samplers[chain] = _default_chain() if chain == "default" else _greedy_chain()
        return int(lib.llama_sampler_sample(self._samplers[chain], self._context, -1))

    def last_logits(self) -> list[float]:
        """Logits of the last token that asked for them: one for each entry of the vocabulary."""
        logits = lib.llama_get_logits_ith(self._context, -1)
        return list(logits[: lib.llama_vocab_n_tokens(self._vocab)])

    def close(self) -> None:
        """See Engine."""
        for sampler in self._samplers.values():
            lib.llama_sampler_free(sampler)
        self._samplers.clear()
        self._free_context()
        if self._model:
            lib.llama_model_free(self._model)
        self._model = None

    def _free_context(self) -> None:
        contexts = (self._context, self._observed_context, self._ordinary_context)
        for context in {context for context in contexts if context}:
            lib.llama_free(context)
        self._context = self._memory = self._observed_context = self._ordinary_context = None


def _encoded(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _pointer_at(array: Any, index: int, kind: Any) -> Any:
    address = ctypes.addressof(array) + index * ctypes.sizeof(kind)
    return ctypes.cast(address, ctypes.POINTER(kind))


def _decode_failure(code: int, last_words: str) -> str:
    if code == 1:
        return "the context is too small for these tokens: give a larger --ctx or shorter lengths"
    return f"the engine failed to evaluate (code {code}): {last_words}"


def _family(buffer: str) -> str:
    """`CUDA0` -> `CUDA`, `CPU_Mapped` -> `CPU`, `RPC0[host:port]` -> `RPC`; pinned host memory: `CPU`."""
    if buffer.endswith("_Host") or buffer == "AMX":
        return "CPU"
    head = buffer.split("_")[0].split("[")[0]
    return head.rstrip("0123456789") or head


def _greedy_chain() -> Any:
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_greedy())
    return chain


def _default_chain() -> Any:
    """The samplers that llama.cpp's own tools run by default and that do work there: top-k 40, top-p 0.95,
    min-p 0.05, temperature 0.8, then the draw (common/common.h, common_params_sampling)."""
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for sampler in (
        lib.llama_sampler_init_top_k(40),
        lib.llama_sampler_init_top_p(0.95, 1),
        lib.llama_sampler_init_min_p(0.05, 1),
        lib.llama_sampler_init_temp(0.8),
        lib.llama_sampler_init_dist(0),
    ):
        lib.llama_sampler_chain_add(chain, sampler)
    return chain
