"""What each device can do at most: rates of the engine's own kernels, measured within a time box.

Run it in a process of its own: a kernel may crash. Of several repetitions the fastest counts, since a
ceiling is what a device does undisturbed. Matrix-vector products pass over as many matrices as it takes to
exceed the caches; at the model's own shapes over no more weights than the model has, so that what the
caches do for a small model is in its figure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from probes.errors import UnmeasurableError
from probes.ggml_devices import Device, devices
from probes.kernels import Backend, row_bytes
from probes.records import DeviceCeiling, KernelRate, MatrixShape

BATCH_TOKENS = 512
"""Vectors in a matrix-matrix product: the engine's usual micro-batch."""
BUDGET_S = 5.0

_MEASURED_KINDS = ("cpu", "gpu", "igpu", "unknown")
"""Accelerators without memory of their own, and devices made of others, are left out."""
_MAX_TYPES = 3
"""Number formats measured at large shapes, those of most bytes first."""
_LARGE_ROWS, _LARGE_COLUMNS = 8192, 4096
_SQUARE, _LARGER_SQUARE = 2048, 8192
"""Sides of a large matrix-matrix product; the larger where the other is over too soon to be timed well."""
_LARGER_COPIES = 2
_TOO_SOON_S = 0.005
_MIB = 2**20
_LEAST_SET_BYTES, _MOST_SET_BYTES = 256 * _MIB, 1024 * _MIB
_DEVICE_SET_BYTES = 512 * _MIB
"""Twice the largest cache of today's GPUs: 256 MiB."""
_CACHES_EXCEEDED = 2
"""Weights passed over, in sizes of the last-level cache."""
_MEMORY_SHARE = 0.25
"""Of the free memory, at most, that the weights may take."""
_TRANSFER_BYTES = (_MIB, 64 * _MIB)
_MAX_COPIES = 8192
_LEAST_RUNS, _MOST_RUNS = 4, 25
_BUSY_SPREAD = 1.3
"""Of the median over the fastest run, from which on the machine is taken to be busy with other things."""
_CACHE_FOLDER = Path("/sys/devices/system/cpu")
_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    shapes: Sequence[MatrixShape]
    threads: int
    batch_tokens: int
    weight_buffers: Collection[str]
    memory_bytes: int | None
    formats: Sequence[str]
    other_shapes: Sequence[MatrixShape]
    other_buffers: Collection[str]


def measure_ceilings(
    shapes: Sequence[MatrixShape],
    *,
    threads: int,
    budget_s: float = BUDGET_S,
    batch_tokens: int = BATCH_TOKENS,
    weight_buffers: Collection[str] = (),
    memory_bytes: int | None = None,
    device_names: Collection[str] | None = None,
    formats: Sequence[str] = (),
    other_shapes: Sequence[MatrixShape] = (),
    other_buffers: Collection[str] = (),
    other_threads: Sequence[int] = (),
) -> tuple[DeviceCeiling, ...]:
    """Measure every device of the engine, or those of `device_names`, in about `budget_s` seconds.

    `shapes` are the model's own, `other_shapes` those that it would have in other quantizations, `formats`
    the ggml types to measure where there is no model, `threads` are those of CPU devices, which are measured
    once more with each of `other_threads`. `weight_buffers` names the buffer types in which a finished run
    had its weights (`CPU_REPACK`, ...): extra ones are used where they are named, never otherwise, since they
    need instructions that a machine may announce and not have; `other_buffers` those for `other_shapes`.
    `memory_bytes` is the free memory of the host. What could not be measured is None, its reason stands in
    `unknown`; a figure that has one all the same is in doubt for it.
    """
    wanted = _Wanted(
        shapes=shapes,
        threads=threads,
        batch_tokens=batch_tokens,
        weight_buffers=weight_buffers,
        memory_bytes=memory_bytes,
        formats=formats,
        other_shapes=other_shapes,
        other_buffers=other_buffers,
    )
    chosen = [
        device
        for device in devices()
        if device.facts.kind in _MEASURED_KINDS
        and (device_names is None or device.facts.name in device_names)
    ]
    jobs = [(device, wanted) for device in chosen]
    jobs += [
        (device, dataclasses.replace(wanted, threads=count, other_shapes=()))
        for count in other_threads
        for device in chosen
        if device.facts.kind == "cpu"
    ]
    end_s = time.perf_counter() + budget_s
    ceilings = []
    for left, (device, work) in zip(range(len(jobs), 0, -1), jobs, strict=True):
        now_s = time.perf_counter()
        ceilings.append(_DeviceBench(device, work, now_s + (end_s - now_s) / left).measure())
    return tuple(ceilings)


class _DeviceBench:
    """Measures one device until its time is over, the most telling figures first."""

    def __init__(self, device: Device, wanted: _Wanted, end_s: float) -> None:
        self._device = device
        self._wanted = wanted
        self._end_s = end_s
        self._is_cpu = device.facts.kind == "cpu"
        self._is_remote = device.facts.name.startswith("RPC")
        self._buffers = wanted.weight_buffers
        self._set_bytes, doubt = _weight_set(device, wanted.memory_bytes)
        self._unknown: dict[str, str] = {} if doubt is None else {"memory_bytes_s": doubt}
        self._rates: list[KernelRate] = []
        self._large: list[KernelRate] = []
        self._spreads: list[float] = []
        self._operation_s: float | None = None
        self._transfer_bytes_s: float | None = None
        self._types = list(wanted.formats) or _commonest_types(wanted.shapes)
        self._others = () if self._is_remote else wanted.other_shapes
        self._left = 2 + 2 * len(self._types) + 2 * (len(wanted.shapes) + len(self._others))

    def measure(self) -> DeviceCeiling:
        """Every figure that fits into the time."""
        with self._trying("rates"), Backend(self._device, self._wanted.threads) as backend:
            with self._trying("operation_s"):
                self._measure_operations(backend)
            if not self._is_cpu:
                with self._trying("transfer_bytes_s"):
                    self._measure_transfer(backend)
            # Large weights take long to get to another machine: there the model's own sizes matter more.
            parts = [self._measure_all_large, self._measure_all_own]
            for measure in reversed(parts) if self._is_remote else parts:
                measure(backend)
            self._measure_others(backend)
        if self._spreads and statistics.median(self._spreads) > _BUSY_SPREAD:
            self._unknown["rates"] = "busy: runs of the same kernel differed too much, something else ran"
        return self._ceiling()

    def _measure_all_large(self, backend: Backend) -> None:
        for weight_type in self._types:
            with self._trying("memory_bytes_s"):
                self._measure_large_vector(backend, weight_type, self._large)
            with self._trying("compute_flops_s"):
                self._measure_large_batch(backend, weight_type, self._large)

    def _measure_all_own(self, backend: Backend) -> None:
        for shape in self._wanted.shapes:
            with self._trying("rates"):
                self._measure_own(backend, shape)

    def _measure_others(self, backend: Backend) -> None:
        """What other quantizations would run: no part of the ceilings, whose reasons they must not fill."""
        reasons, self._buffers = dict(self._unknown), self._wanted.other_buffers
        large = dict.fromkeys(one.weight_type for one in self._others if not self._is_measured_itself(one))
        for weight_type in (name for name in large if name not in self._types):
            with self._trying("rates"):
                self._measure_large_batch(backend, weight_type, self._rates)
        for shape in self._others:
            with self._trying("rates"):
                self._measure_own(backend, shape)
        self._unknown, self._buffers = reasons, self._wanted.weight_buffers

    def _ceiling(self) -> DeviceCeiling:
        vectors = [rate.weight_bytes / rate.seconds for rate in self._large if rate.batch == 1]
        batches = [
            2 * rate.rows * rate.columns * rate.batch / rate.seconds for rate in self._large if rate.batch > 1
        ]
        return DeviceCeiling(
            device=self._device.facts.name,
            threads=self._wanted.threads if self._is_cpu else None,
            memory_bytes_s=max(vectors, default=None),
            compute_flops_s=max(batches, default=None),
            operation_s=self._operation_s,
            transfer_bytes_s=self._transfer_bytes_s,
            rates=(*self._large, *self._rates),
            unknown=self._unknown,
        )

    @contextlib.contextmanager
    def _trying(self, field: str) -> Iterator[None]:
        """One measurement: where it fails, the reason is noted for the field and the next one follows."""
        try:
            yield
        except UnmeasurableError as error:
            self._unknown.setdefault(field, f"{error.reason}: {error}")
        self._left = max(1, self._left - 1)

    def _fastest_s(self, run: Callable[[], None]) -> float:
        """Seconds of the fastest of several runs, within this measurement's share of the time. The first ones
        warm caches and threads up, so they are not the fastest."""
        begin_s = time.perf_counter()
        slot_end_s = begin_s + max(0.0, self._end_s - begin_s) / self._left
        runs_s: list[float] = []
        while begin_s < (slot_end_s if len(runs_s) >= _LEAST_RUNS else self._end_s) or not runs_s:
            begin_s = time.perf_counter()
            run()
            runs_s.append(time.perf_counter() - begin_s)
            if len(runs_s) == _MOST_RUNS:
                break
        self._spreads.append(statistics.median(runs_s) / min(runs_s))
        return min(runs_s)

    def _require_time(self) -> None:
        if time.perf_counter() >= self._end_s:
            raise UnmeasurableError("the time for it was over", reason="budget")

    def _measure_operations(self, backend: Backend) -> None:
        with backend.operations() as graph:
            self._operation_s = self._fastest_s(graph.run) / graph.nodes

    def _measure_transfer(self, backend: Backend) -> None:
        """A small copy first: over a slow network the large one would take too long."""
        for n_bytes in _TRANSFER_BYTES:
            rate = self._transfer_bytes_s
            if rate is None or 5 * n_bytes / rate < self._end_s - time.perf_counter():
                with backend.transfer(n_bytes) as copy:
                    self._transfer_bytes_s = n_bytes / self._fastest_s(copy)

    def _measure_large_vector(self, backend: Backend, weight_type: str, rates: list[KernelRate]) -> None:
        n_bytes = row_bytes(_LARGE_COLUMNS, weight_type)
        rows = min(_LARGE_ROWS, self._sendable_bytes() // n_bytes)
        if rows < _LARGE_COLUMNS // 4:
            raise UnmeasurableError("weights take too long to get there", reason="budget")
        copies = max(1, self._set_bytes // (rows * n_bytes))
        rates.append(self._rate(backend, rows, _LARGE_COLUMNS, weight_type, 1, copies))

    def _measure_large_batch(self, backend: Backend, weight_type: str, rates: list[KernelRate]) -> None:
        batch = self._wanted.batch_tokens
        rate = self._rate(backend, _SQUARE, _SQUARE, weight_type, batch, 1)
        larger_bytes = _LARGER_SQUARE * row_bytes(_LARGER_SQUARE, weight_type)
        has_room = larger_bytes <= self._sendable_bytes() and _LARGER_COPIES * larger_bytes <= self._set_bytes
        if rate.seconds < _TOO_SOON_S and has_room:
            rate = self._rate(backend, _LARGER_SQUARE, _LARGER_SQUARE, weight_type, batch, _LARGER_COPIES)
        rates.append(rate)

    def _measure_own(self, backend: Backend, shape: MatrixShape) -> None:
        """A shape of the model; what is as large as the large ones has their rate."""
        rows, columns, weight_type = shape.rows, shape.columns, shape.weight_type
        n_bytes = row_bytes(columns, weight_type) * rows
        if n_bytes < min(self._set_bytes, self._sendable_bytes()):
            copies = min(_MAX_COPIES, max(1, min(self._set_bytes, self._model_bytes()) // n_bytes))
            self._rates.append(self._rate(backend, rows, columns, weight_type, 1, copies))
        if self._is_measured_itself(shape):
            self._rates.append(self._rate(backend, rows, columns, weight_type, self._wanted.batch_tokens, 1))

    def _is_measured_itself(self, shape: MatrixShape) -> bool:
        """Whether its matrix-matrix product is; larger ones run at the rate of the large square."""
        return shape.rows * shape.columns < _SQUARE**2

    def _rate(
        self, backend: Backend, rows: int, columns: int, weight_type: str, batch: int, copies: int
    ) -> KernelRate:
        """One kind of product: the fastest run of a graph of `copies` of it."""
        self._require_time()
        with backend.products(rows, columns, weight_type, batch, copies, self._buffers) as graph:
            seconds = self._fastest_s(graph.run) / copies
        return KernelRate(
            rows=rows,
            columns=columns,
            batch=batch,
            weight_type=weight_type,
            seconds=seconds,
            weight_bytes=rows * row_bytes(columns, weight_type),
        )

    def _sendable_bytes(self) -> int:
        """Weights that get to the device within one measurement's time."""
        if self._transfer_bytes_s is None:
            return self._set_bytes
        slot_s = max(0.0, self._end_s - time.perf_counter()) / self._left
        return int(slot_s * self._transfer_bytes_s)

    def _model_bytes(self) -> int:
        return sum(
            shape.in_model * shape.rows * row_bytes(shape.columns, shape.weight_type)
            for shape in self._wanted.shapes
        )


def _commonest_types(shapes: Sequence[MatrixShape]) -> list[str]:
    """The formats that most of a token's weights are in."""
    n_weights: Counter[str] = Counter()
    for shape in shapes:
        n_weights[shape.weight_type] += shape.per_token * shape.rows * shape.columns
    return [name for name, _ in n_weights.most_common(_MAX_TYPES)]


def _weight_set(device: Device, memory_bytes: int | None) -> tuple[int, str | None]:
    """Bytes of weights to pass over, and why caches may help all the same."""
    is_cpu = device.facts.kind == "cpu"
    known = [size for size in (device.facts.memory_free_bytes, memory_bytes if is_cpu else None) if size]
    room = int(min(known) * _MEMORY_SHARE) if known else _LEAST_SET_BYTES
    if not is_cpu:
        return min(_DEVICE_SET_BYTES, room), None
    cache_bytes = last_level_cache_bytes()
    if cache_bytes is None:
        return min(_LEAST_SET_BYTES, room), "caches: their size is not known, they may have helped"
    wanted = max(_LEAST_SET_BYTES, _CACHES_EXCEEDED * cache_bytes)
    chosen = min(wanted, _MOST_SET_BYTES, room)
    if chosen < _CACHES_EXCEEDED * cache_bytes:
        return chosen, f"caches: {cache_bytes // _MIB} MiB of them may have held part of the weights"
    return chosen, None


def last_level_cache_bytes(folder: Path = _CACHE_FOLDER) -> int | None:
    """All last-level caches of the machine together, as Linux tells; None elsewhere."""
    caches: dict[str, tuple[int, int]] = {}
    for index in folder.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, size = int((index / "level").read_text()), (index / "size").read_text().strip()
            shared_by = (index / "shared_cpu_list").read_text().strip()
        except (OSError, ValueError):
            continue  # a cache that the kernel does not describe
        if size[-1:] in _SUFFIXES and size[:-1].isdecimal():
            here = (level, int(size[:-1]) * _SUFFIXES[size[-1]])
            caches[shared_by] = max(caches.get(shared_by, here), here)
    last = max((level for level, _ in caches.values()), default=None)
    return sum(size for level, size in caches.values() if level == last) if last else None
