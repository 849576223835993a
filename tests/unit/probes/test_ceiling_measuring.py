"""What is measured, in which order and how it becomes figures, on scripted devices and a scripted clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from probes import ceilings
from probes.ceilings import last_level_cache_bytes, measure_ceilings
from probes.errors import UnmeasurableError
from probes.ggml_devices import Device
from probes.kernels import row_bytes
from probes.records import DeviceCeiling, DeviceFacts, KernelRate, MatrixShape

MIB = 2**20
GIB = 2**30
BANDWIDTH = 10e9
FLOPS = 100e9
SHAPES = (
    MatrixShape(rows=1024, columns=512, weight_type="F16", per_token=10, in_model=20),
    MatrixShape(rows=512, columns=512, weight_type="Q8_0", per_token=2, in_model=2),
)


@dataclasses.dataclass
class Scripted:
    """A machine whose kernels take exactly as long as their bytes or operations do."""

    now_s: float = 100.0
    slow_runs: int = 1
    """The first runs of each graph take twice as long."""
    jitter: float = 1.0
    """Two of three runs take this much longer."""
    unsupported: Collection[str] = ()
    opens: bool = True
    asked: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)

    def perf_counter(self) -> float:
        return self.now_s

    def run(self, seconds: float) -> Callable[[], None]:
        runs = 0

        def once() -> None:
            nonlocal runs
            factor = 2.0 if runs < self.slow_runs else self.jitter if runs % 3 else 1.0
            runs += 1
            self.now_s += seconds * factor

        return once


@dataclasses.dataclass
class ScriptedGraph:
    run: Callable[[], None]
    nodes: int = 1


class ScriptedBackend:
    """Stands in for `probes.kernels.Backend`."""

    machine: Scripted

    def __init__(self, device: Device, threads: int) -> None:
        if not self.machine.opens:
            raise UnmeasurableError("it does not open", reason="device")
        self.machine.asked.append(("open", device.facts.name, threads))

    def __enter__(self) -> ScriptedBackend:
        return self

    def __exit__(self, *_error: object) -> None:
        self.machine.asked.append(("close",))

    @contextmanager
    def operations(self) -> Iterator[ScriptedGraph]:
        yield ScriptedGraph(self.machine.run(400 * 1e-6), nodes=400)

    @contextmanager
    def transfer(self, n_bytes: int) -> Iterator[Callable[[], None]]:
        self.machine.asked.append(("transfer", n_bytes))
        yield self.machine.run(n_bytes / 1e9)

    @contextmanager
    def products(
        self, rows: int, columns: int, weight_type: str, batch: int, copies: int, extra: Collection[str]
    ) -> Iterator[ScriptedGraph]:
        if weight_type in self.machine.unsupported:
            raise UnmeasurableError(f"no kernel for {weight_type}", reason="unsupported")
        self.machine.asked.append(("products", rows, columns, weight_type, batch, copies, tuple(extra)))
        n_bytes = rows * row_bytes(columns, weight_type)
        one_s = n_bytes / BANDWIDTH if batch == 1 else 2 * rows * columns * batch / FLOPS
        yield ScriptedGraph(self.machine.run(copies * one_s))


def device(name: str = "CPU", kind: str = "cpu", free_bytes: int | None = 16 * GIB) -> Device:
    facts = DeviceFacts(
        name=name,
        description="scripted",
        kind=kind,  # type: ignore[arg-type]
        memory_total_bytes=free_bytes,
        memory_free_bytes=free_bytes,
    )
    return Device(handle=1, facts=facts)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    monkeypatch.setattr(ScriptedBackend, "machine", scripted, raising=False)
    monkeypatch.setattr(ceilings, "Backend", ScriptedBackend)
    monkeypatch.setattr(ceilings, "time", scripted)
    monkeypatch.setattr(ceilings, "devices", lambda: (device(),))
    monkeypatch.setattr(ceilings, "last_level_cache_bytes", lambda: 32 * MIB)
    return scripted


def measured(**options: Any) -> DeviceCeiling:
    (ceiling,) = measure_ceilings(SHAPES, threads=2, **({"budget_s": 60.0} | options))
    return ceiling


def rate(ceiling: DeviceCeiling, rows: int, batch: int, weight_type: str = "F16") -> KernelRate:
    (found,) = (
        one for one in ceiling.rates if (one.rows, one.batch, one.weight_type) == (rows, batch, weight_type)
    )
    return found


def test_figures_are_those_of_the_fastest_run(machine: Scripted) -> None:
    found = measured()
    assert found.device == "CPU"
    assert found.threads == 2
    assert found.memory_bytes_s == pytest.approx(BANDWIDTH)
    assert found.compute_flops_s == pytest.approx(FLOPS)
    assert found.operation_s == pytest.approx(1e-6)
    assert found.transfer_bytes_s is None
    assert found.unknown == {}
    # 1,024 x 512 weights of two bytes at 10 GB/s.
    assert rate(found, 1024, 1).seconds == pytest.approx(1024 * 512 * 2 / 10e9)
    assert rate(found, 1024, 1).weight_bytes == 1024 * 512 * 2
    # 2 x 1,024 x 512 x 512 operations at 100 GFLOP/s.
    assert rate(found, 1024, 512).seconds == pytest.approx(2 * 1024 * 512 * 512 / 100e9)
    assert machine.asked[0] == ("open", "CPU", 2)
    assert machine.asked[-1] == ("close",)


def test_large_products_pass_over_more_than_the_caches_hold(
    machine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "last_level_cache_bytes", lambda: 200 * MIB)
    found = measured()
    large = [asked for asked in machine.asked if asked[:2] == ("products", 8192) and asked[3] == "F16"]
    # 8,192 x 4,096 x 2 bytes are 64 MiB: six of them fit into two times 200 MiB.
    assert [asked[5] for asked in large] == [6]
    assert found.unknown == {}


def test_own_shapes_pass_over_no_more_than_the_model_has(machine: Scripted) -> None:
    measured()
    own = [asked for asked in machine.asked if asked[:3] == ("products", 1024, 512) and asked[4] == 1]
    # Twenty matrices of 1 MiB and two of 512 x 544 bytes are 21,528,576 bytes: twenty matrices of 1 MiB.
    assert [asked[5] for asked in own] == [20]


@pytest.mark.usefixtures("machine")
def test_caches_that_can_not_be_exceeded_are_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "last_level_cache_bytes", lambda: 200 * MIB)
    found = measured(memory_bytes=1 * GIB)  # a quarter of it, 256 MiB, may be taken
    assert found.memory_bytes_s == pytest.approx(BANDWIDTH)
    assert "200 MiB" in found.unknown["memory_bytes_s"]
    monkeypatch.setattr(ceilings, "last_level_cache_bytes", lambda: None)
    assert "not known" in measured().unknown["memory_bytes_s"]


@pytest.mark.usefixtures("machine")
def test_without_time_each_missing_figure_has_its_reason() -> None:
    found = measured(budget_s=0.0)
    assert found.operation_s is not None  # one run of each is begun in any case
    assert found.memory_bytes_s is None
    assert found.unknown["memory_bytes_s"].startswith("budget:")
    assert found.unknown["compute_flops_s"].startswith("budget:")
    assert found.rates == ()


def test_the_budget_is_kept(machine: Scripted) -> None:
    begin_s = machine.now_s
    measured(budget_s=2.0)
    # What has begun is ended: at most one run of the longest graph, 2 x 2,048^2 x 512 operations, 43 ms.
    assert machine.now_s - begin_s < 2.0 + 2 * 0.043


def test_a_format_without_kernel_costs_that_format_alone(machine: Scripted) -> None:
    machine.unsupported = ("F16",)
    found = measured()
    assert found.unknown["rates"] == "unsupported: no kernel for F16"
    assert {one.weight_type for one in found.rates} == {"Q8_0"}
    assert found.memory_bytes_s == pytest.approx(BANDWIDTH)


def test_a_device_that_does_not_open_is_told(machine: Scripted) -> None:
    machine.opens = False
    found = measured()
    assert (found.memory_bytes_s, found.compute_flops_s, found.operation_s) == (None, None, None)
    assert found.unknown["rates"] == "device: it does not open"


def test_runs_that_differ_much_tell_of_a_busy_machine(machine: Scripted) -> None:
    machine.jitter = 3.0
    machine.slow_runs = 0
    found = measured()
    assert found.unknown["rates"].startswith("busy:")
    assert found.memory_bytes_s == pytest.approx(BANDWIDTH)  # the fastest run was not disturbed


def test_devices_get_a_transfer_rate_and_no_threads(
    machine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = (device(), device("BLAS", "accel"), device("CUDA0", "gpu"))
    monkeypatch.setattr(ceilings, "devices", lambda: both)
    host, gpu = measure_ceilings(SHAPES, threads=2, budget_s=60.0)
    assert (host.device, gpu.device) == ("CPU", "CUDA0")
    assert gpu.threads is None
    assert gpu.transfer_bytes_s == pytest.approx(1e9)
    assert ("transfer", 64 * MIB) in machine.asked
    (only,) = measure_ceilings(SHAPES, threads=2, device_names=("CUDA0",))
    assert only.device == "CUDA0"


def test_a_slow_connection_gets_fewer_weights(machine: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "devices", lambda: (device("RPC0", "gpu"),))
    measured(budget_s=0.3)  # at 1 GB/s no time for 64 MiB
    assert ("transfer", 64 * MIB) not in machine.asked
    sent = [asked[1] for asked in machine.asked if asked[0] == "products" and asked[2] == 4096]
    assert sent
    assert all(1024 <= rows < 8192 for rows in sent)


def test_extra_layouts_are_used_only_when_named(machine: Scripted) -> None:
    measured()
    assert {asked[6] for asked in machine.asked if asked[0] == "products"} == {()}
    machine.asked.clear()
    measured(weight_buffers=("CPU_REPACK",))
    assert {asked[6] for asked in machine.asked if asked[0] == "products"} == {("CPU_REPACK",)}


def test_what_another_quantization_would_run_is_no_part_of_the_ceilings(machine: Scripted) -> None:
    others = (
        MatrixShape(rows=1024, columns=512, weight_type="Q4_0", per_token=10, in_model=20),
        MatrixShape(rows=4096, columns=2048, weight_type="Q4_K", per_token=1, in_model=1),
    )
    found = measured(other_shapes=others, other_buffers=("CPU_REPACK",))
    assert found.memory_bytes_s == pytest.approx(BANDWIDTH)
    assert rate(found, 1024, 1, "Q4_0").seconds == pytest.approx(1024 * 512 * 18 / 32 / BANDWIDTH)
    assert rate(found, 1024, 512, "Q4_0").seconds == pytest.approx(2 * 1024 * 512 * 512 / FLOPS)
    assert rate(found, 4096, 1, "Q4_K").seconds == pytest.approx(4096 * 2048 * 144 / 256 / BANDWIDTH)
    # Larger than the large square: its matrix-matrix product has that one's rate.
    assert rate(found, 2048, 512, "Q4_K").seconds == pytest.approx(2 * 2048**2 * 512 / FLOPS)
    layouts = {asked[3]: asked[6] for asked in machine.asked if asked[0] == "products"}
    assert layouts == {"F16": (), "Q8_0": (), "Q4_0": ("CPU_REPACK",), "Q4_K": ("CPU_REPACK",)}
    machine.unsupported = ("Q4_0",)
    assert measured(other_shapes=others).unknown == {}


def test_other_numbers_of_threads_are_measured_on_the_cpu_alone(
    machine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "devices", lambda: (device(), device("CUDA0", "gpu")))
    found = measure_ceilings(SHAPES, threads=1, budget_s=60.0, other_threads=(2, 4))
    assert [(one.device, one.threads) for one in found] == [
        ("CPU", 1),
        ("CUDA0", None),
        ("CPU", 2),
        ("CPU", 4),
    ]
    assert [asked[2] for asked in machine.asked if asked[:2] == ("open", "CPU")] == [1, 2, 4]


def describe_cache(folder: Path, cpu: int, index: int, level: int, size: str, shared_by: str) -> None:
    place = folder / f"cpu{cpu}/cache/index{index}"
    place.mkdir(parents=True)
    for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared_by)):
        (place / name).write_text(f"{text}\n")


def test_last_level_caches_are_summed_each_once(tmp_path: Path) -> None:
    for cpu in range(4):
        describe_cache(tmp_path, cpu, 0, 1, "48K", str(cpu))
        describe_cache(tmp_path, cpu, 2, 2, "2M", str(cpu))
        describe_cache(tmp_path, cpu, 3, 3, "32768K", "0-1" if cpu < 2 else "2-3")
    assert last_level_cache_bytes(tmp_path) == 64 * MIB


def test_a_machine_that_does_not_describe_its_caches_has_unknown_ones(tmp_path: Path) -> None:
    assert last_level_cache_bytes(tmp_path) is None
    (tmp_path / "cpu0/cache/index0").mkdir(parents=True)
    assert last_level_cache_bytes(tmp_path) is None
