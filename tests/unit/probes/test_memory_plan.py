"""The memory plan, each sum done by hand in a comment."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest
import sample_runs as sample

from probes.errors import EXIT_UNMEASURED, UnmeasurableError, UsageError
from probes.memory_plan import compute_bytes, kv_bytes_per_token, plan_memory, require_fits
from probes.records import DeviceFacts, MachineFacts, ModelFacts, Settings

MIB = 2**20
GIB = 2**30

DEMO = sample.model(
    model_bytes=92 * MIB,
    n_layers=30,
    n_ctx_train=8192,
    n_vocab=49152,
    n_embd=576,
    kv_elements_per_token=30 * 2 * 192,  # 30 layers, K and V, 3 heads of 64
)
LOGITS_ROW = 49152 * 4


def model(**changes: Any) -> ModelFacts:
    return dataclasses.replace(DEMO, **changes)


def settings(**changes: Any) -> Settings:
    return sample.settings(**{"n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "swa_full": True, **changes})


def machine(available: int | None) -> MachineFacts:
    return sample.machine(memory_available_bytes=available)


def device(free: int | None, kind: Literal["gpu", "igpu", "cpu"] = "gpu") -> DeviceFacts:
    return sample.device(name="GPU0", kind=kind, memory_total_bytes=None, memory_free_bytes=free)


class TestCompute:
    @pytest.mark.parametrize(
        ("n_ctx", "n_ubatch", "reported_mib"),
        [(512, 512, 98.25), (8192, 512, 98.25), (32768, 512, 98.25), (8192, 128, 24.56)],
    )
    def test_matches_what_the_engine_reports(self, n_ctx: int, n_ubatch: int, reported_mib: float) -> None:
        estimate = compute_bytes(DEMO, settings(n_ubatch=n_ubatch), n_ctx) - LOGITS_ROW
        assert estimate / MIB == pytest.approx(reported_mib, abs=0.01)

    def test_a_batch_or_context_smaller_than_the_micro_batch_limits_it(self) -> None:
        # 64 * (49152 + 2 * 576) * 4
        assert compute_bytes(DEMO, settings(n_batch=64), 8192) - LOGITS_ROW == 12_877_824
        assert compute_bytes(DEMO, settings(), 64) - LOGITS_ROW == 12_877_824

    def test_long_contexts_are_ruled_by_the_mask(self) -> None:
        # one f16 mask: 512 * 8192 * 2; two with a sliding window; none without attention
        small = model(n_vocab=285, n_embd=256)
        assert compute_bytes(small, settings(), 8192) == 8 * MIB + 285 * 4
        windowed = dataclasses.replace(small, attention="sliding-window")
        assert compute_bytes(windowed, settings(), 8192) == 16 * MIB + 285 * 4
        recurrent = dataclasses.replace(small, attention="recurrent")
        assert compute_bytes(recurrent, settings(), 8192) == 512 * (285 + 512) * 4 + 285 * 4


class TestCache:
    @pytest.mark.parametrize(
        ("type_k", "type_v", "expected"),
        [
            ("f16", "f16", 11520 * 2),
            ("f32", "f32", 11520 * 4),
            ("q8_0", "q8_0", 11520 * 34 / 32),
            ("q8_0", "q4_0", 5760 * 34 / 32 + 5760 * 18 / 32),
            ("F16", "q5_1", 5760 * 2 + 5760 * 24 / 32),
        ],
    )
    def test_bytes_of_a_token(self, type_k: str, type_v: str, expected: float) -> None:
        assert kv_bytes_per_token(DEMO, type_k, type_v) == expected

    def test_an_unknown_type(self) -> None:
        with pytest.raises(UsageError, match="q8_0") as caught:
            kv_bytes_per_token(DEMO, "f16", "q9")
        assert caught.value.reason == "cache-type"

    @pytest.mark.parametrize(("n_ctx", "padded"), [(1, 256), (256, 256), (257, 512), (8192, 8192)])
    def test_the_context_is_rounded_up_as_the_engine_does(self, n_ctx: int, padded: int) -> None:
        plan = plan_memory(DEMO, settings(n_ctx=n_ctx), machine(GIB))
        assert (plan.n_ctx, plan.kv_bytes) == (padded, padded * 23040)

    def test_zero_means_the_training_context(self) -> None:
        assert plan_memory(DEMO, settings(n_ctx=0), machine(GIB)).n_ctx == 8192

    def test_a_windowed_cache_counts_its_least(self) -> None:
        windowed = model(sliding_window_tokens=1000)
        # 1000 + 512 tokens, rounded up to 1536 cells
        assert (
            plan_memory(windowed, settings(n_ctx=8192, swa_full=False), machine(GIB)).kv_bytes == 1536 * 23040
        )
        assert plan_memory(windowed, settings(n_ctx=8192), machine(GIB)).kv_bytes == 8192 * 23040
        assert (
            plan_memory(windowed, settings(n_ctx=256, swa_full=False), machine(GIB)).kv_bytes == 256 * 23040
        )


class TestHost:
    NEED = 92 * MIB + 512 * 23040 + 512 * (49152 + 1152) * 4 + LOGITS_ROW

    def test_weights_cache_and_compute_add_up(self) -> None:
        plan = plan_memory(DEMO, settings(), machine(GIB))
        assert plan.host_need_bytes == self.NEED
        assert plan.device_need_bytes == 0
        assert plan.fits is True

    def test_the_limit_is_exact(self) -> None:
        assert plan_memory(DEMO, settings(), machine(self.NEED)).fits is True
        assert plan_memory(DEMO, settings(), machine(self.NEED - 1)).fits is False

    def test_the_largest_context_is_the_last_that_fits(self) -> None:
        available = 300 * MIB
        largest = plan_memory(DEMO, settings(), machine(available)).max_n_ctx
        # (300 - 92 - 98.25 - 0.1875) MiB / 23,040 B = 4986 tokens, rounded down to 4864
        assert largest == 4864
        assert plan_memory(DEMO, settings(n_ctx=largest), machine(available)).fits is True
        assert plan_memory(DEMO, settings(n_ctx=largest + 256), machine(available)).fits is False

    def test_it_ends_at_the_training_context_unless_more_was_asked(self) -> None:
        assert plan_memory(DEMO, settings(), machine(100 * GIB)).max_n_ctx == 8192
        assert plan_memory(DEMO, settings(n_ctx=16384), machine(100 * GIB)).max_n_ctx == 16384

    def test_no_context_helps_when_the_weights_do_not_fit(self) -> None:
        plan = plan_memory(DEMO, settings(load_mode="mmap"), machine(90 * MIB))
        assert (plan.fits, plan.max_n_ctx) == (False, 0)

    def test_unknown_memory_refuses_nothing(self) -> None:
        plan = plan_memory(DEMO, settings(), machine(None))
        assert (plan.fits, plan.max_n_ctx) == (None, None)
        require_fits(plan)

    def test_an_unknown_cache_size_still_checks_the_weights(self) -> None:
        unknown = model(kv_elements_per_token=None)
        assert plan_memory(unknown, settings(), machine(GIB)).fits is True
        plan = plan_memory(unknown, settings(), machine(90 * MIB))
        assert (plan.fits, plan.kv_bytes, plan.max_n_ctx) == (False, None, None)

    def test_integrated_graphics_share_the_hosts_memory(self) -> None:
        plan = plan_memory(
            DEMO, settings(n_gpu_layers=-1), machine(GIB), [device(GIB, "igpu"), device(1, "cpu")]
        )
        assert (plan.device_need_bytes, plan.device_free_bytes) == (0, None)
        assert plan.host_need_bytes == self.NEED


class TestDevice:
    SPREAD = 92 * MIB + 512 * 23040
    COMPUTE = 512 * (49152 + 1152) * 4 + LOGITS_ROW

    def test_all_layers(self) -> None:
        plan = plan_memory(DEMO, settings(n_gpu_layers=-1), machine(0), [device(GIB)])
        assert (plan.host_need_bytes, plan.device_need_bytes) == (0, self.SPREAD + self.COMPUTE)
        assert plan.fits is True

    def test_no_layers(self) -> None:
        plan = plan_memory(DEMO, settings(n_gpu_layers=0), machine(GIB), [device(1)])
        assert (plan.host_need_bytes, plan.device_need_bytes) == (self.SPREAD + self.COMPUTE, 0)
        assert plan.fits is True

    def test_some_layers_of_31(self) -> None:
        plan = plan_memory(DEMO, settings(n_gpu_layers=10), machine(GIB), [device(GIB)])
        on_device = int(self.SPREAD * (10 / 31))
        assert plan.device_need_bytes == on_device + self.COMPUTE
        assert plan.host_need_bytes == self.SPREAD - on_device + self.COMPUTE

    def test_auto_fills_the_device_and_leaves_the_rest(self) -> None:
        free = self.COMPUTE + 50 * MIB
        plan = plan_memory(DEMO, settings(), machine(GIB), [device(free)])
        assert plan.device_need_bytes == free
        assert plan.host_need_bytes == self.SPREAD - 50 * MIB + self.COMPUTE
        assert plan.fits is True

    def test_devices_add_up_and_one_that_does_not_tell_makes_it_unknown(self) -> None:
        two = plan_memory(DEMO, settings(n_gpu_layers=-1), machine(0), [device(GIB), device(GIB)])
        assert two.device_free_bytes == 2 * GIB
        silent = plan_memory(DEMO, settings(n_gpu_layers=-1), machine(0), [device(GIB), device(None)])
        assert (silent.device_free_bytes, silent.fits) == (None, None)


class TestRefusal:
    def refusal(self, **changes: Any) -> str:
        available = changes.pop("available", 300 * MIB)
        devices = changes.pop("devices", ())
        plan = plan_memory(DEMO, settings(**changes), machine(available), devices)
        require_fits(plan, force=True)
        with pytest.raises(UnmeasurableError) as caught:
            require_fits(plan)
        assert caught.value.reason == "memory"
        assert caught.value.exit_code == EXIT_UNMEASURED
        return str(caught.value)

    def test_it_gives_the_numbers_and_the_context_that_fits(self) -> None:
        assert self.refusal(n_ctx=8192) == (
            "the load needs 370.4 MiB of memory and 300.0 MiB is free"
            " (weights 92.0 MiB, KV cache 180.0 MiB at 8,192 tokens, compute 98.4 MiB in all)."
            " a context of 4,864 tokens fits: give shorter lengths, or that --ctx; --force tries all the same"
        )

    def test_weights_alone_too_large(self) -> None:
        assert "smaller quantization" in self.refusal(available=50 * MIB)

    def test_a_full_device(self) -> None:
        message = self.refusal(n_gpu_layers=-1, devices=[device(100 * MIB)])
        assert "GPU memory and 100.0 MiB is free" in message
        assert "--gpu-layers" in message
