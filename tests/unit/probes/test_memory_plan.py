"""The memory plan, each sum done by hand in a comment."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest
import sample_runs as sample

from probes.errors import EXIT_UNMEASURED, UnmeasurableError, UsageError
from probes.memory_plan import (
    compute_bytes,
    layers_that_fit,
    plan_memory,
    refusal,
    require_fits,
)
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
        asked = settings(n_ctx=256, type_k=type_k, type_v=type_v)
        assert plan_memory(DEMO, asked, machine(GIB)).kv_bytes == 256 * expected

    def test_an_unknown_type(self) -> None:
        with pytest.raises(UsageError, match="q8_0") as caught:
            plan_memory(DEMO, settings(type_v="q9"), machine(GIB))
        assert caught.value.reason == "cache-type"

    @pytest.mark.parametrize(("n_ctx", "padded"), [(1, 256), (256, 256), (257, 512), (8192, 8192)])
    def test_the_context_is_rounded_up_as_the_engine_does(self, n_ctx: int, padded: int) -> None:
        plan = plan_memory(DEMO, settings(n_ctx=n_ctx), machine(GIB))
        assert (plan.n_ctx, plan.kv_bytes) == (padded, padded * 23040)

    def test_zero_means_the_training_context(self) -> None:
        assert plan_memory(DEMO, settings(n_ctx=0), machine(GIB)).n_ctx == 8192

    @pytest.mark.parametrize(
        ("n_ctx", "changes", "cells"),
        [
            (8192, {}, 1536),  # 1000 + 512 tokens, rounded up
            (8192, {"n_batch": 256}, 1280),  # a micro-batch is no larger than a batch
            (256, {}, 256),  # never more than the context
            (8192, {"swa_full": True}, 8192),
        ],
    )
    def test_windowed_layers_keep_the_window_and_the_others_everything(
        self, n_ctx: int, changes: dict[str, Any], cells: int
    ) -> None:
        # Five of six layers are windowed, of 768 bytes a token each.
        facts = {
            "sliding_window_tokens": 1000,
            "layer_windowed": (True, True, True, True, True, False) * 5,
            "layer_bytes": (2 * MIB,) * 30,
            "layer_kv_elements": (2 * 192,) * 30,
        }
        asked = settings(**{"n_ctx": n_ctx, "swa_full": False, "n_gpu_layers": 3, **changes})
        plan = plan_memory(model(**facts), asked, machine(GIB), [device(GIB)])
        assert (plan.kv_bytes, plan.is_kv_least) == (768 * (25 * cells + 5 * n_ctx), False)
        # The last two are on the device: one of each kind, and the output layer.
        compute = compute_bytes(model(**facts), asked, n_ctx)
        assert plan.devices[0].need_bytes == 2 * 2 * MIB + 768 * (cells + n_ctx) + compute

    def test_where_nothing_tells_which_layers_are_windowed_the_least_counts(self) -> None:
        windowed = model(sliding_window_tokens=1000)
        plan = plan_memory(windowed, settings(n_ctx=8192, swa_full=False), machine(100 * MIB))
        assert (plan.kv_bytes, plan.is_kv_least) == (1536 * 23040, True)
        assert "KV cache at least 33.8 MiB at 8,192 tokens" in str(refusal(plan))
        full = plan_memory(windowed, settings(n_ctx=8192), machine(100 * MIB))
        assert (full.kv_bytes, full.is_kv_least) == (8192 * 23040, False)
        assert "at least" not in str(refusal(full))


class TestHost:
    NEED = 92 * MIB + 512 * 23040 + 512 * (49152 + 1152) * 4 + LOGITS_ROW

    def test_weights_cache_and_compute_add_up(self) -> None:
        plan = plan_memory(DEMO, settings(), machine(GIB))
        assert plan.host_need_bytes == self.NEED
        assert plan.devices == ()
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
        assert plan.devices == ()
        assert plan.host_need_bytes == self.NEED


class TestDevice:
    """30 layers of 2 MiB, an output layer of 20 MiB that is the embedding too, 12 MiB of the rest."""

    CACHE = 512 * 2 * 192 * 2  # of one layer: cells, K and V, 3 heads of 64, f16
    COMPUTE = 512 * (49152 + 1152) * 4 + LOGITS_ROW
    LAYERED = dataclasses.replace(
        DEMO,
        layer_bytes=(2 * MIB,) * 30,
        layer_kv_elements=(2 * 192,) * 30,
        output_bytes=20 * MIB,
        tied_output=True,
    )

    def test_all_layers_leave_the_embedding_on_the_host_and_copy_it(self) -> None:
        plan = plan_memory(self.LAYERED, settings(n_gpu_layers=-1), machine(GIB), [device(GIB)])
        assert plan.devices[0].need_bytes == 80 * MIB + 30 * self.CACHE + self.COMPUTE
        assert plan.host_need_bytes == 32 * MIB + self.COMPUTE  # 12 of the rest, 20 of the embedding
        assert (plan.fits, plan.gpu_layers) == (True, 31)

    def test_no_layers(self) -> None:
        plan = plan_memory(self.LAYERED, settings(n_gpu_layers=0), machine(GIB), [device(1)])
        assert plan.devices[0].need_bytes == 0
        assert plan.host_need_bytes == 92 * MIB + 30 * self.CACHE + self.COMPUTE
        assert plan.fits is True

    def test_the_output_layer_is_the_first_one_to_go(self) -> None:
        plan = plan_memory(self.LAYERED, settings(n_gpu_layers=10), machine(GIB), [device(GIB)])
        assert plan.devices[0].need_bytes == (20 + 9 * 2) * MIB + 9 * self.CACHE + self.COMPUTE
        assert plan.host_need_bytes == (32 + 21 * 2) * MIB + 21 * self.CACHE + self.COMPUTE

    def test_a_cache_kept_on_the_host(self) -> None:
        kept = settings(n_gpu_layers=-1, kv_offload=False)
        plan = plan_memory(self.LAYERED, kept, machine(GIB), [device(GIB)])
        assert plan.devices[0].need_bytes == 80 * MIB + self.COMPUTE
        assert plan.host_need_bytes == 32 * MIB + 30 * self.CACHE + self.COMPUTE

    def test_experts_kept_on_the_host(self) -> None:
        experts = dataclasses.replace(self.LAYERED, layer_expert_bytes=(MIB,) * 30)
        plan = plan_memory(experts, settings(n_gpu_layers=-1, n_cpu_moe=4), machine(GIB), [device(GIB)])
        assert plan.devices[0].need_bytes == (80 - 4) * MIB + 30 * self.CACHE + self.COMPUTE

    def test_auto_is_as_many_as_fit(self) -> None:
        five = 20 * MIB + 4 * (2 * MIB + self.CACHE) + self.COMPUTE
        assert layers_that_fit(self.LAYERED, settings(), [device(five)]) == 5
        assert layers_that_fit(self.LAYERED, settings(), [device(five - 1)]) == 4
        assert layers_that_fit(self.LAYERED, settings(), [device(GIB)]) == 31
        assert layers_that_fit(self.LAYERED, settings(), [device(1)]) == 0
        assert layers_that_fit(self.LAYERED, settings(), [device(None)]) is None
        assert layers_that_fit(self.LAYERED, settings(), []) is None
        plan = plan_memory(self.LAYERED, settings(), machine(GIB), [device(five)])
        assert (plan.gpu_layers, plan.devices[0].need_bytes) == (5, five)

    def test_two_devices_share_by_what_is_free(self) -> None:
        plan = plan_memory(
            self.LAYERED, settings(n_gpu_layers=-1), machine(GIB), [device(GIB), device(3 * GIB)]
        )
        # The points are 1/4 and 1: layers 0 to 7 (7/31 < 1/4 < 8/31) go to the first device.
        assert plan.devices[0].need_bytes == 8 * (2 * MIB + self.CACHE) + self.COMPUTE
        assert plan.devices[1].need_bytes == 64 * MIB + 22 * self.CACHE + self.COMPUTE

    def test_a_split_that_was_asked_for(self) -> None:
        wanted = settings(n_gpu_layers=-1, tensor_split=(1.0, 0.0))
        plan = plan_memory(self.LAYERED, wanted, machine(GIB), [device(GIB), device(3 * GIB)])
        assert plan.devices[1].need_bytes == 0
        main = settings(n_gpu_layers=-1, split_mode="none", main_gpu=1)
        plan = plan_memory(self.LAYERED, main, machine(GIB), [device(GIB), device(3 * GIB)])
        assert plan.devices[0].need_bytes == 0

    def test_one_device_that_does_not_tell_makes_it_unknown(self) -> None:
        plan = plan_memory(self.LAYERED, settings(n_gpu_layers=-1), machine(GIB), [device(GIB), device(None)])
        assert plan.fits is None

    def test_without_sizes_of_layers_their_number_is_all_there_is(self) -> None:
        plan = plan_memory(DEMO, settings(n_gpu_layers=10), machine(GIB), [device(GIB)])
        on_device = int((92 * MIB + 30 * self.CACHE) * (10 / 31))
        assert plan.devices[0].need_bytes == on_device + self.COMPUTE
        assert plan.host_need_bytes == 92 * MIB + 30 * self.CACHE - on_device + self.COMPUTE


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

    def test_neither_context_nor_quantization_helps(self) -> None:
        # Q2_K would be 134,515,008 weights * 3.16 / 8 = 50.7 MiB.
        assert "take a smaller model" in self.refusal(available=50 * MIB)

    def test_it_names_the_largest_quantization_that_fits(self) -> None:
        # KV cache 11.25, compute 98.4 at 512 tokens, so of 180 MiB 70.3 are left for weights: Q4_K_M would be
        # 134,515,008 * 4.9 / 8 = 78.6 MiB, Q3_K_M 64.1 MiB.
        message = self.refusal(available=180 * MIB)
        assert "as Q3_K_M (about 64.1 MiB of weights) this model fits at that context" in message

    def test_where_the_header_tells_no_cache_size_a_quantization_may_still_help(self) -> None:
        unknown = model(kv_elements_per_token=None)
        plan = plan_memory(unknown, settings(), machine(180 * MIB))
        assert plan.fitting_quantization == "Q4_K_M"  # 78.6 + 98.4
        assert plan.max_n_ctx is None

    def test_what_fits_needs_no_other_quantization(self) -> None:
        assert plan_memory(DEMO, settings(), machine(GIB)).fitting_quantization is None

    def test_a_full_device(self) -> None:
        message = self.refusal(n_gpu_layers=-1, devices=[device(100 * MIB)])
        assert "memory on GPU0 and 100.0 MiB is free" in message
        assert "--gpu-layers" in message
