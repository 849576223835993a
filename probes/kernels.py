"""Graphs of the engine's own kernels on one device, ready to run: matrix products, tiny operations, copies.

Everything that costs time besides the computing (memory, valid weights, the graph) is made ahead, so that
`Graph.run` does nothing but compute and wait for the end.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

from probes.errors import UnmeasurableError
from probes.ggml_devices import Device
from probes.ggml_library import EXTRA_BUFFER_TYPES, FLOATS, SET_THREADS, InitParams, ggml
from probes.ggml_types import GGML_TYPES, TYPE_NUMBERS, GgmlType

_QUANTIZED_WEIGHTS = 1 << 16
"""Weights quantized once and laid out again and again: the formats of some take long to make."""
_NO_WEIGHTS = frozenset({"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"})
"""Formats that the library does not make weights in."""
_SLOW_TO_MAKE = frozenset({"IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S"})
"""Formats whose tables for quantizing take seconds to set up; their blocks begin with an F16 scale."""

_NUMBER_BYTES = 4

_CHAIN_WIDTH = 64
_CHAIN_BLOCKS = 12
_CHAIN_NODES_PER_BLOCK = 32
_EPSILON = 1e-5


class Graph:
    """A graph with its tensors in memory."""

    def __init__(self, backend: int, handle: int, result: int) -> None:
        self._backend = backend
        self._handle = handle
        self._wait = functools.partial(_read_back, result, ctypes.create_string_buffer(_NUMBER_BYTES))
        self._compute = ggml().ggml_backend_graph_compute
        self.nodes = int(ggml().ggml_graph_n_nodes(handle))

    def run(self) -> None:
        """Compute all of it and wait. Raises UnmeasurableError when the device fails."""
        status = self._compute(self._backend, self._handle)
        self._wait()
        if status:
            raise UnmeasurableError(f"the device failed to compute (status {status})", reason="compute")


class Backend:
    """A device opened for computing; close it, or use it in a `with` statement."""

    def __init__(self, device: Device, threads: int) -> None:
        """`threads` counts on a CPU device alone. Raises UnmeasurableError when the device does not open."""
        self.device = device
        self._library = ggml()
        self._handle = self._library.ggml_backend_dev_init(device.handle, None)
        if not self._handle:
            raise UnmeasurableError(f"{device.facts.name} does not open", reason="device")
        set_threads = self._registered("ggml_backend_set_n_threads")
        if set_threads:
            SET_THREADS(set_threads)(self._handle, threads)

    def __enter__(self) -> Backend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the device."""
        self._library.ggml_backend_free(self._handle)

    @contextmanager
    def products(
        self,
        rows: int,
        columns: int,
        weight_type: str,
        batch: int,
        copies: int,
        extra_buffers: Collection[str] = (),
    ) -> Iterator[Graph]:
        """`copies` products, each of a weight matrix of its own with the same `batch` vectors.

        Weights lie in the first of the device's extra buffer types that is named in `extra_buffers` and has
        a kernel for them, else in its usual one. Raises UnmeasurableError: `unsupported` where the device has
        no kernel for it, `memory` where there is too little.
        """
        content = weight_bytes(rows, columns, weight_type)
        buffer_types = (*self._extra_buffer_types(extra_buffers), self._usual_buffer_type())
        with ExitStack() as stack:
            for buffer_type in buffer_types:
                if self._has_kernel(rows, columns, weight_type, batch, buffer_type):
                    break
            else:
                raise UnmeasurableError(
                    f"{self.device.facts.name} has no kernel for {weight_type}", reason="unsupported"
                )
            weights, rest = _new_context(stack, copies), _new_context(stack, 2 * copies + 8)
            matrices = [_new_matrix(weights, weight_type, rows, columns) for _ in range(copies)]
            self._allocate(stack, weights, buffer_type)
            vectors = _new_matrix(rest, "F32", batch, columns)
            products = [self._library.ggml_mul_mat(rest, matrix, vectors) for matrix in matrices]
            graph = self._graph(rest, products)
            self._allocate(stack, rest, self._usual_buffer_type())
            self._fill(matrices, content)
            self._set(vectors, _numbers(columns * batch))
            yield graph

    @contextmanager
    def operations(self) -> Iterator[Graph]:
        """The operations of a decoder's blocks at a width where they move next to nothing.

        Kinds and order are those of a llama block: of 32 nodes 20 compute and 12 only look at a tensor in
        another way. In the engine's own graphs 57 to 72 % of the nodes compute, as counted on models with
        full, windowed, recurrent and mixed attention and with experts.
        """
        size = _CHAIN_BLOCKS * _CHAIN_NODES_PER_BLOCK + 8
        with ExitStack() as stack:
            context = _new_context(stack, size)
            matrix = _new_matrix(context, "F16", _CHAIN_WIDTH, _CHAIN_WIDTH)
            scale = _new_matrix(context, "F32", 1, _CHAIN_WIDTH)
            start = _new_matrix(context, "F32", 1, _CHAIN_WIDTH)
            end = start
            for _ in range(_CHAIN_BLOCKS):
                end = _block(context, end, matrix, scale)
            graph = self._graph(context, [end], size)
            self._allocate(stack, context, self._usual_buffer_type())
            self._set(matrix, weight_bytes(_CHAIN_WIDTH, _CHAIN_WIDTH, "F16"))
            for tensor in (scale, start):
                self._set(tensor, _numbers(_CHAIN_WIDTH))
            yield graph

    @contextmanager
    def transfer(self, n_bytes: int) -> Iterator[Callable[[], None]]:
        """Copying that many bytes (a multiple of 4) from ordinary host memory onto the device."""
        with ExitStack() as stack:
            yield self._copy_to(self._row(stack, n_bytes), n_bytes)

    @contextmanager
    def fetch(self, n_bytes: int) -> Iterator[Callable[[], None]]:
        """Copying that many bytes (a multiple of 4) from the device into ordinary host memory."""
        with ExitStack() as stack:
            tensor = self._row(stack, n_bytes)
            self._copy_to(tensor, n_bytes)()
            room = ctypes.create_string_buffer(n_bytes)
            yield functools.partial(self._library.ggml_backend_tensor_get, tensor, room, 0, n_bytes)

    def _row(self, stack: ExitStack, n_bytes: int) -> int:
        """A tensor of that many bytes on the device."""
        context = _new_context(stack, 2)
        tensor = _new_matrix(context, "F32", 1, n_bytes // _NUMBER_BYTES)
        self._allocate(stack, context, self._usual_buffer_type())
        return tensor

    def _copy_to(self, tensor: int, n_bytes: int) -> Callable[[], None]:
        """Writing a tensor's content and waiting until it is there."""
        content = b"\x3f" * n_bytes  # fresh zeros would all come from one page
        room = ctypes.create_string_buffer(_NUMBER_BYTES)

        def copy() -> None:
            self._set(tensor, content)
            _read_back(tensor, room)

        return copy

    def _usual_buffer_type(self) -> int:
        return int(self._library.ggml_backend_dev_buffer_type(self.device.handle))

    def _extra_buffer_types(self, names: Collection[str]) -> Iterator[int]:
        """Buffer types that lay weights out anew for instructions that a machine may announce and not have:
        only those that are asked for by name."""
        get = self._registered("ggml_backend_dev_get_extra_bufts") if names else None
        types = EXTRA_BUFFER_TYPES(get)(self.device.handle) if get else None
        for pointer in _until_null(types):
            if self._library.ggml_backend_buft_name(pointer).decode("utf-8", "replace") in names:
                yield pointer

    def _has_kernel(self, rows: int, columns: int, weight_type: str, batch: int, buffer_type: int) -> bool:
        with ExitStack() as stack:
            weights, rest = _new_context(stack, 1), _new_context(stack, 2)
            matrix = _new_matrix(weights, weight_type, rows, columns)
            self._allocate(stack, weights, buffer_type)
            product = self._library.ggml_mul_mat(rest, matrix, _new_matrix(rest, "F32", batch, columns))
            return bool(self._library.ggml_backend_dev_supports_op(self.device.handle, product))

    def _registered(self, name: str) -> int | None:
        """The address of a function that the device's backend offers by name; None where it has none."""
        registry = self._library.ggml_backend_dev_backend_reg(self.device.handle)
        address: int | None = self._library.ggml_backend_reg_get_proc_address(registry, name.encode())
        return address

    def _allocate(self, stack: ExitStack, context: int, buffer_type: int) -> None:
        buffer = self._library.ggml_backend_alloc_ctx_tensors_from_buft(context, buffer_type)
        if not buffer:
            raise UnmeasurableError(f"{self.device.facts.name} has too little memory", reason="memory")
        stack.callback(self._library.ggml_backend_buffer_free, buffer)

    def _graph(self, context: int, ends: list[int], size: int | None = None) -> Graph:
        library = self._library
        handle = library.ggml_new_graph_custom(context, size or 2 * len(ends) + 8, False)
        for tensor in ends:
            library.ggml_build_forward_expand(handle, tensor)
        return Graph(self._handle, handle, ends[-1])

    def _fill(self, matrices: list[int], content: bytes) -> None:
        """The same weights for all; devices copy them from the first, not each from the host."""
        for matrix in matrices:
            if matrix == matrices[0] or self.device.facts.kind == "cpu":
                self._set(matrix, content)
            else:
                self._library.ggml_backend_tensor_copy(matrices[0], matrix)

    def _set(self, tensor: int, content: bytes) -> None:
        self._library.ggml_backend_tensor_set(tensor, content, 0, len(content))


def _read_back(tensor: int, room: ctypes.Array[ctypes.c_char]) -> None:
    """Read one number of a result. Synchronizing is not enough: a remote device answers when it has the work,
    not when it has done it."""
    ggml().ggml_backend_tensor_get(tensor, room, 0, _NUMBER_BYTES)


def _new_context(stack: ExitStack, size: int) -> int:
    """Room for the descriptions of `size` tensors and a graph of them; their data lie elsewhere."""
    library = ggml()
    room = library.ggml_tensor_overhead() * size + library.ggml_graph_overhead_custom(size, False)
    context: int = library.ggml_init(InitParams(room, None, True))
    stack.callback(library.ggml_free, context)
    return context


def _block(context: int, hidden: int, matrix: int, scale: int) -> int:
    """One block: attention with stand-ins of its shape-changing steps, then the gated feed-forward part."""
    library = ggml()
    times = functools.partial(library.ggml_mul_mat, context, matrix)

    def looked_at(tensor: int, ways: int) -> int:
        for _ in range(ways):
            tensor = library.ggml_reshape_2d(context, tensor, _CHAIN_WIDTH, 1)
        return tensor

    def touched(tensor: int, steps: int) -> int:
        for _ in range(steps):
            tensor = library.ggml_scale(context, tensor, 1.0)
        return tensor

    def normed(tensor: int) -> int:
        normal = library.ggml_rms_norm(context, tensor, _EPSILON)
        return int(library.ggml_mul(context, normal, scale))

    add = functools.partial(library.ggml_add, context)
    inputs = normed(hidden)
    query = touched(looked_at(times(inputs), 3), 1)
    key = touched(looked_at(times(inputs), 3), 2)
    value = touched(looked_at(times(inputs), 3), 1)
    attended = looked_at(add(add(query, key), value), 3)
    hidden = add(hidden, times(attended))
    inputs = normed(hidden)
    gated = library.ggml_swiglu_split(context, times(inputs), times(inputs))
    return int(add(hidden, times(gated)))


def row_bytes(columns: int, weight_type: str) -> int:
    """Bytes of one row of weights in this format.

    Raises UnmeasurableError (`unsupported`) for a format in which no weights can be made.
    """
    _, format_ = _format(weight_type)
    return columns // format_.block_elements * format_.block_bytes


def weight_bytes(rows: int, columns: int, weight_type: str) -> bytes:
    """A matrix of ordinary small weights in this format: no zeros, infinities or denormals, on which
    kernels may run at another speed. Rows repeat. Raises as `row_bytes` does."""
    number, format_ = _format(weight_type)
    unique = min(rows, max(1, _QUANTIZED_WEIGHTS // columns))
    one_row = row_bytes(columns, weight_type)
    if weight_type in _SLOW_TO_MAKE:
        made = _random_blocks(unique * one_row // format_.block_bytes, format_.block_bytes)
    else:
        room = ctypes.create_string_buffer(unique * one_row)
        source = ctypes.cast(ctypes.c_char_p(_numbers(unique * columns)), FLOATS)
        ggml().ggml_quantize_chunk(number, source, room, 0, unique, columns, None)
        made = room.raw
    whole, rest = divmod(rows, unique)
    return made * whole + made[: rest * one_row]


def _random_blocks(count: int, block_bytes: int) -> bytes:
    """Blocks with an ordinary scale in front and any codes behind it: every code stands for weights."""
    import numpy as np

    blocks = np.random.default_rng(1).integers(0, 256, (count, block_bytes), dtype=np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), dtype=np.uint8)
    return blocks.tobytes()


def _format(weight_type: str) -> tuple[int, GgmlType]:
    if weight_type not in TYPE_NUMBERS or weight_type in _NO_WEIGHTS:
        raise UnmeasurableError(f"the engine makes no weights in {weight_type[:20]}", reason="unsupported")
    number = TYPE_NUMBERS[weight_type]
    return number, GGML_TYPES[number]


def _new_matrix(context: int, weight_type: str, rows: int, columns: int) -> int:
    return int(ggml().ggml_new_tensor_2d(context, TYPE_NUMBERS[weight_type], columns, rows))


def _numbers(count: int) -> bytes:
    """Normally distributed numbers as F32, the same each time."""
    import numpy as np

    return np.random.default_rng(1).standard_normal(count, dtype=np.float32).tobytes()


def _until_null(pointers: Any) -> Iterator[int]:
    index = 0
    while pointers and pointers[index]:
        yield pointers[index]
        index += 1
