# ruff: noqa: E501 - lines as programs print them
"""Each program's lines become the facts that they state: no more, and none of them wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.logs import PARSERS, LogRead, Request, read_log
from reports.logs.base import KEPT_REQUESTS

PERF = """\
llama_perf_context_print:        load time =      32.27 ms
llama_perf_context_print: prompt eval time =      32.12 ms /     8 tokens (    4.01 ms per token,   249.10 tokens per second)
llama_perf_context_print:        eval time =     296.94 ms /    23 runs   (   12.91 ms per token,    77.46 tokens per second)
llama_perf_context_print:       total time =     334.54 ms /    31 tokens
"""
OLD = """\
llama_print_timings:        load time = 36435.52 ms
llama_print_timings:      sample time =    25.31 ms /    64 runs   (    0.40 ms per token,  2528.44 tokens per second)
llama_print_timings: prompt eval time = 146713.31 ms /  1294 tokens (  113.38 ms per token,     8.82 tokens per second)
llama_print_timings:        eval time = 15896.12 ms /    63 runs   (  252.32 ms per token,     3.96 tokens per second)
llama_print_timings:       total time = 163419.00 ms
"""
SERVER_2025 = """\
slot launch_slot_: id  0 | task 7 | processing task
slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 4096, n_keep = 0, n_prompt_tokens = 1035
slot update_slots: id  0 | task 7 | kv cache rm [35, end)
slot print_timing: id  0 | task 7 |
prompt eval time =    1115.02 ms /  1000 tokens (    1.12 ms per token,   896.86 tokens per second)
       eval time =     146.02 ms /    21 tokens (    6.95 ms per token,   143.82 tokens per second)
      total time =    1261.04 ms /  1021 tokens
slot      release: id  0 | task 7 | stop processing: n_past = 1055, truncated = 0
"""
OLLAMA = """\
total duration:       4.732s
load duration:        40.2ms
prompt eval count:    36 token(s)
prompt eval duration: 391ms
prompt eval rate:     92.07 tokens/s
eval count:           70 token(s)
eval duration:        4.297s
eval rate:            16.29 tokens/s
"""


def read(text: str) -> LogRead:
    return read_log(text.splitlines())


def only(text: str) -> Request:
    (request,) = read(text).requests
    return request


def facts(text: str) -> dict[str, Any]:
    return only(text).facts


# --- llama.cpp's prints


def test_runs_are_steps_and_one_token_more() -> None:
    found = facts(PERF)
    assert found["n_output"] == 24
    assert found["decode_s"] == pytest.approx(0.29694)
    assert found["decode_tok_s"] == pytest.approx(23 / 0.29694)
    assert found["n_prompt"] == 8
    assert found["prefill_s"] == pytest.approx(0.03212)


def test_a_load_that_contains_the_first_evaluation_loses_it() -> None:
    # total 334.54 - prompt 32.12 - eval 296.94 = 5.48 ms: no room for 32.27, but for 32.27 - 32.12 = 0.15
    request = only(PERF)
    assert request.facts["load_s"] == pytest.approx(0.00015)
    assert any("contains the first evaluation" in note for note in request.notes)


def test_a_load_of_an_earlier_request_is_no_part_of_this_one() -> None:
    # 146.71 + 15.90 + 0.03 of 163.42 s leave 0.78 s: the 36 s were spent before.
    found = facts(OLD)
    assert "load_s" not in found
    assert found["start"] == "loaded"
    assert found["sampling_s"] == pytest.approx(0.02531)
    assert found["n_output"] == 64


def test_a_load_that_the_total_holds_stays() -> None:
    text = OLD.replace("163419.00", "199900.00")
    assert facts(text)["load_s"] == pytest.approx(36.43552)


def test_the_newest_print_keeps_sampling_apart() -> None:
    found = facts(
        "common_perf_print:    sampling time =      70.90 ms\n"
        "common_perf_print:    samplers time =      45.40 ms /   520 tokens\n"
        "common_perf_print: prompt eval time =      19.04 ms /     8 tokens\n"
        "common_perf_print:        eval time =    4852.86 ms /   511 runs\n"
        "common_perf_print:       total time =    4945.97 ms /   519 tokens\n"
        "common_perf_print: unaccounted time =       3.18 ms /   0.1 %\n"
    )
    assert found["sampling_s"] == pytest.approx(0.0709)
    assert found["n_output"] == 512


def test_cached_tokens_are_no_evaluated_ones() -> None:
    request = only(f"Llama.generate: 80 prefix-match hit, remaining 8 prompt tokens to eval\n{PERF}")
    assert request.facts["n_prompt"] == 88
    assert request.facts["n_prompt_cached"] == 80
    assert request.facts["prefill_tok_s"] == pytest.approx(8 / 0.03212)
    assert request.facts["engine"] == "llama-cpp-python"


def test_counters_that_are_off_are_no_times() -> None:
    zero = "x: prompt eval time = 0.00 ms / 1 tokens ( 0.00 ms per token, inf tokens per second)\n"
    request = only(zero + "x: eval time = 0.00 ms / 1 runs ( 0.00 ms per token, inf tokens per second)\n")
    assert request.facts == {}
    assert "no_perf" in request.notes[0]


def test_a_prompt_without_time_is_unknown_not_free() -> None:
    request = only(
        "llama_perf_context_print: prompt eval time = 0.00 ms / 5 tokens (0.00 ms per token, inf tokens per second)\n"
        "llama_perf_context_print: eval time = 300.00 ms / 30 runs\n"
    )
    assert "prefill_s" not in request.facts
    assert "n_prompt" not in request.facts
    assert any("0.00 ms" in note for note in request.notes)


def test_a_rate_that_time_and_count_deny_is_named() -> None:
    request = only(
        "x: prompt eval time = -nan(ind) ms / 5 tokens\n"
        "x: eval time = 100.00 ms / 9 runs (11.1 ms per token, 90000.00 tokens per second)\n"
    )
    assert "prefill_s" not in request.facts
    assert request.facts["decode_tok_s"] == pytest.approx(90)
    assert any("90,000" in note for note in request.notes)


def test_figures_in_another_language() -> None:
    found = facts("prompt eval time = 1.032,12 ms / 1.294 tokens\neval time = 296,94 ms / 23 runs\n")
    assert found["prefill_s"] == pytest.approx(1.03212)
    assert found["n_prompt"] == 1294


def test_each_print_is_a_request() -> None:
    assert [one.line for one in read(PERF + PERF + OLD).requests] == [4, 8, 13]


def test_a_print_cut_in_the_middle_gives_what_is_there() -> None:
    request = only(OLD[:300])
    assert request.facts["prefill_s"] == pytest.approx(146.71331)
    assert "decode_s" not in request.facts
    assert "n_output" not in request.facts


# --- llama-server


def test_a_servers_request_has_three_counts() -> None:
    found = facts(SERVER_2025)
    assert (found["n_prompt"], found["n_prompt_cached"], found["n_output"]) == (1035, 35, 21)
    assert found["prefill_tok_s"] == pytest.approx(1000 / 1.11502)
    assert found["n_ctx"] == 4096
    assert found["start"] == "loaded"


def test_the_whole_prompt_follows_from_the_slot() -> None:
    # In the slot at the end: 58 = prompt + 24 drawn - the last of them, so the prompt has 35 and 34 were cached.
    found = facts(
        "0.06.4 I slot print_timing: id  1 | task 22 | prompt eval time =       7.19 ms /     1 tokens\n"
        "0.06.4 I slot print_timing: id  1 | task 22 |        eval time =     151.19 ms /    24 tokens\n"
        "0.06.4 I slot print_timing: id  1 | task 22 |       total time =     158.38 ms /    25 tokens\n"
        "0.06.4 I slot      release: id  1 | task 22 | stop processing: n_tokens = 58, truncated = 0\n"
    )
    assert (found["n_prompt"], found["n_prompt_cached"], found["n_output"]) == (35, 34, 24)


def test_slots_that_write_at_the_same_time_are_kept_apart() -> None:
    lines = [
        "slot print_timing: id  0 | task 1 | prompt eval time =  100.00 ms /  10 tokens",
        "slot print_timing: id  1 | task 2 | prompt eval time =  200.00 ms /  40 tokens",
        "slot print_timing: id  0 | task 1 |        eval time =  900.00 ms /  10 tokens",
        "slot print_timing: id  1 | task 2 |        eval time =  500.00 ms /   6 tokens",
        "slot      release: id  0 | task 1 | stop processing: n_tokens = 19, truncated = 0",
        "slot      release: id  1 | task 2 | stop processing: n_tokens = 45, truncated = 0",
    ]
    first, second = read_log(lines).requests
    assert (first.facts["n_prompt"], first.facts["n_output"]) == (10, 10)
    assert (second.facts["n_prompt"], second.facts["n_output"]) == (40, 6)


def test_a_servers_reply() -> None:
    reply = {
        "model": "m",
        "usage": {"prompt_tokens": 35},
        "timings": {
            "cache_n": 34,
            "prompt_n": 1,
            "prompt_ms": 7.19,
            "predicted_n": 24,
            "predicted_ms": 151.187,
        },
    }
    found = facts(json.dumps(reply))
    assert (found["n_prompt"], found["n_prompt_cached"], found["n_output"]) == (35, 34, 24)
    assert found["decode_tok_s"] == pytest.approx(23 / 0.151187)
    assert facts(json.dumps(reply, indent=2)) == found  # over many lines
    assert facts(f"data: {json.dumps(reply)}") == found  # as a stream of events


# --- Ollama


def test_ollamas_print() -> None:
    found = facts(OLLAMA)
    assert found["load_s"] == pytest.approx(0.0402)
    assert found["total_s"] == pytest.approx(4.732)
    assert (found["n_prompt"], found["n_output"]) == (36, 70)
    assert found["decode_tok_s"] == pytest.approx(69 / 4.297)


def test_a_missing_count_is_not_zero() -> None:
    text = "\n".join(line for line in OLLAMA.splitlines() if "prompt eval count" not in line)
    request = only(text.replace("prompt eval rate:     92.07 tokens/s\n", ""))
    assert "n_prompt" not in request.facts
    assert "no prompt count" in request.notes[0]


def test_ollamas_reply_is_in_nanoseconds() -> None:
    stream = (
        '{"model":"m","response":"a","done":false}\n'
        '{"model":"m","done":true,"context":[1,2],"total_duration":4732000000,"load_duration":40200000,'
        '"prompt_eval_count":36,"prompt_eval_duration":391000000,"eval_count":70,"eval_duration":4297000000}\n'
    )
    found = facts(stream)
    assert found["prefill_s"] == pytest.approx(0.391)
    assert found["decode_s"] == pytest.approx(4.297)


# --- others


def test_koboldcpps_three_wordings() -> None:
    new, middle, old = read(
        "[12:00:00] CtxLimit:3203/32000, Amt:861/2048, Init:0.01s, Process:13.56s (172.76T/s),"
        " Generate:41.13s (20.91T/s), Total:54.69s\n"
        "CtxLimit: 1334/4096, Process:20.00s (15.9ms/T = 62.88T/s), Generate:10.00s (100.0ms/T = 10.00T/s),"
        " Total:30.00s (3.33T/s)\n"
        "ContextLimit: 614/2048, Processing:0.43s (5.5ms/T), Generation:3.62s (55.8ms/T), Total:4.06s (16.02T/s)\n"
    ).requests
    # 3203 in the context less 861 written leave 2342; 13.56 s at 172.76 T/s evaluated as many.
    assert (new.facts["n_prompt"], new.facts["n_prompt_cached"], new.facts["n_output"]) == (2342, 0, 861)
    assert new.facts["total_s"] == pytest.approx(54.69)
    # 20 s at 62.88 T/s evaluated 1258 of 1334 - 100: all of it.
    assert middle.facts["n_output"] == 100
    assert middle.facts["prefill_tok_s"] == pytest.approx(62.88)
    # 3.62 s at 55.8 ms make 65 tokens; 614 - 65 = 549, of which 0.43 s at 5.5 ms evaluated 78.
    assert (old.facts["n_output"], old.facts["n_prompt"], old.facts["n_prompt_cached"]) == (65, 549, 471)
    # The rate over both phases is none of either.
    assert old.facts["decode_tok_s"] == pytest.approx(64 / 3.62)


def test_lm_studios_line_and_lists() -> None:
    chat, listed = read(
        "42.10 tok/sec • 456 tokens • 0.52s to first token • Stop reason: EOS Token Found\n"
        "Prediction Stats:\n  Tokens/Second: 12,50\n  Time to First Token: 0.123s\n  Prompt Tokens: 1.294\n"
        "  Predicted Tokens: 200\n"
    ).requests
    assert chat.facts["decode_tok_s"] == pytest.approx(42.1)
    assert chat.facts["n_output"] == 456
    assert chat.facts["prefill_s"] == pytest.approx(0.52)
    assert listed.facts["n_prompt"] == 1294
    assert listed.facts["decode_tok_s"] == pytest.approx(12.5)


def test_lm_studios_reply() -> None:
    reply = {
        "model": "m",
        "usage": {"prompt_tokens": 24, "completion_tokens": 53},
        "stats": {"tokens_per_second": 51.4, "time_to_first_token": 0.111, "generation_time": 0.954},
        "model_info": {"quant": "Q4_K_M", "context_length": 4096},
    }
    found = facts(json.dumps(reply))
    assert found["prefill_s"] == 0.111
    assert (found["n_prompt"], found["n_output"], found["n_ctx"]) == (24, 53, 4096)


# --- the loader


LOADER = """\
  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
llama_model_loader: loaded meta data with 33 key-value pairs and 272 tensors from m.gguf (version GGUF V3 (latest))
print_info: file size   = 3.80 GiB (4.84 BPW)
print_info: n_layer          = 32
print_info: n_expert         = 0
load_tensors: offloaded 20/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  2048.00 MiB
load_tensors:   CPU_Mapped model buffer size =  1843.00 MiB
llama_context: n_ctx                 = 4096
llama_context: flash_attn            = enabled
llama_kv_cache:      CUDA0 KV buffer size =   320.00 MiB
llama_kv_cache:        CPU KV buffer size =   192.00 MiB
llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB
llama_context: graph splits = 147 (with bs=512), 3 (with bs=1)
system_info: n_threads = 8 (n_threads_batch = 8) / 16 | CPU : SSE3 = 1
"""


def test_loader_lines_belong_to_the_requests_after_them() -> None:
    load = only(LOADER + PERF).load.facts
    assert (load["layers_on_gpu"], load["layers_total"]) == (20, 33)
    assert load["weights_on_gpu_bytes"] == 2048 * 2**20
    assert load["weights_on_cpu_bytes"] == 1843 * 2**20
    assert load["kv_on_cpu"] is False
    assert load["backend"] == "cuda"
    assert load["gpu_name"] == "NVIDIA GeForce RTX 3090"
    assert (load["n_gpus"], load["threads"], load["logical_cpus"]) == (1, 8, 16)
    assert (load["n_ctx"], load["flash_attn"], load["graph_splits"]) == (4096, True, 147)
    assert (load["type_k"], load["type_v"]) == ("f16", "f16")
    assert load["architecture_is_moe"] is False


def test_the_generation_before_says_the_same() -> None:
    load = read(
        "llm_load_print_meta: n_layer          = 80\n"
        "llm_load_print_meta: model size       = 61.77 GiB (7.52 BPW)\n"
        "llm_load_tensors: offloaded 43/81 layers to GPU\n"
        "llm_load_tensors:      ROCm0 buffer size = 21533.93 MiB\n"
        "llm_load_tensors:        CPU buffer size = 41850.31 MiB\n"
        "llama_kv_cache_init:      ROCm0 KV buffer size =   344.00 MiB\n"
        "llama_new_context_with_model: n_ctx      = 2048\n"
        "llama_new_context_with_model: flash_attn = 0\n"
    ).load.facts
    assert (load["layers_on_gpu"], load["layers_total"], load["n_layers"]) == (43, 81, 80)
    assert load["backend"] == "rocm"
    assert load["flash_attn"] is False
    assert load["weights_on_gpu_bytes"] == round(21533.93 * 2**20)


def test_ollamas_engine_says_where_its_weights_lie() -> None:
    load = read(
        "time=x level=INFO source=server.go:175 msg=offload library=cuda layers.requested=-1 layers.model=49"
        ' layers.offload=48 layers.split=""\n'
        'time=x level=INFO source=ggml.go:365 msg="model weights" buffer=CUDA0 size="5.8 GiB"\n'
        'time=x level=INFO source=ggml.go:365 msg="model weights" buffer=CPU size="1.5 GiB"\n'
    ).load.facts
    assert (load["layers_on_gpu"], load["layers_total"]) == (48, 49)
    assert load["weights_on_cpu_bytes"] == round(1.5 * 2**30)
    assert load["backend"] == "cuda"


def test_a_second_load_forgets_the_first() -> None:
    second = LOADER.replace("20/33", "33/33").replace("RTX 3090", "RTX 3090")
    first, again = read(LOADER + PERF + second + PERF).requests
    assert first.load.facts["layers_on_gpu"] == 20
    assert again.load.facts["layers_on_gpu"] == 33
    assert again.load.facts["weights_on_gpu_bytes"] == 2048 * 2**20


def test_a_memory_table_whose_last_column_ran_under_zero() -> None:
    load = read(
        "llama_memory_breakdown_print: |   - CUDA0 (RTX 3090) | 24123 = 3832 + (20252 = 18402 +     296 +    1553) +"
        " 17592186027421 |\n"
        "llama_memory_breakdown_print: |   - Host             |                   2087 =  1030 +       0 +    1057"
        "                |\n"
    ).load.facts
    assert load["weights_on_gpu_bytes"] == 18402 * 2**20
    assert load["weights_on_cpu_bytes"] == 1030 * 2**20


def test_a_mixture_reads_a_part_of_its_weights() -> None:
    # Experts: 3 * 2048 * 768 * 48 * 128 = 29.0 G of 30.5 G parameters; a token uses 8 of 128 of them.
    load = read(
        "print_info: file size = 17.30 GiB (4.86 BPW)\nprint_info: n_embd = 2048\nprint_info: n_layer = 48\n"
        "print_info: n_expert = 128\nprint_info: n_expert_used = 8\nprint_info: n_ff_exp = 768\n"
        "print_info: model params = 30.53 B\n"
    ).load.facts
    in_experts = 3 * 2048 * 768 * 48 * 128 / 30.53e9
    expected = round(17.3 * 2**30) * (1 - in_experts * (1 - 8 / 128))
    assert load["bytes_per_token"] == pytest.approx(expected, rel=1e-3)
    assert load["architecture_is_moe"] is True


# --- benchmarks


def test_a_bench_table_gives_both_rates_and_depths() -> None:
    found = facts(
        "| model                          |       size |     params | backend    | ngl |            test |        t/s |\n"
        "| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | ---------: |\n"
        "| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |           pp512 | 3806.89 ± 9.01 |\n"
        "| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |           tg128 |  111.95 ± 0.21 |\n"
        "| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |   tg128 @ d4096 |   90.00 ± 0.21 |\n"
        "\nbuild: 0c1e570 (1)\n"
    )
    assert found["prefill_tok_s"] == pytest.approx(3806.89)
    assert found["decode_tok_s"] == pytest.approx(111.95)
    assert found["decode_s"] == pytest.approx(128 / 111.95)
    assert found["decode_tok_s_at_depth"] == [[0, 111.95], [4096, 90.0]]
    assert found["backend"] == "cuda"
    assert found["architecture_is_moe"] is False
    assert found["quantization"] == "Q4_K - Medium"


def test_configurations_of_a_bench_are_kept_apart() -> None:
    head = "| model | size | params | backend | ngl | test | t/s |\n|---|---|---|---|---|---|---|\n"
    rows = [
        f"| llama 8B Q8_0 | 7.95 GiB | 8.03 B | CUDA | {ngl} | tg128 | {rate} |"
        for ngl, rate in ((0, 6), (99, 90))
    ]
    log = read(head + "\n".join(rows))
    assert [one.facts["n_gpu_layers_requested"] for one in log.requests] == [0, 99]
    assert not any(one.is_series for one in log.requests)


def test_a_broken_row_costs_that_row() -> None:
    head = "| model | size | params | backend | test | t/s |\n"
    log = read(
        f"{head}| llama 8B Q8_0 | 7.95 GiB | 8.03 B | CPU | tg128 | fast |\n{'| llama 8B Q8_0 | 7.95 GiB | 8.03 B | CPU | tg128 | 6.5 |'}\n"
    )
    assert len(log.requests) == 1
    assert "line 2" in log.notes[0]


def test_sequences_side_by_side_each_get_a_token_a_step() -> None:
    row = {
        "pp": 128,
        "tg": 16,
        "pl": 2,
        "t_pp": 0.8,
        "speed_pp": 320,
        "t_tg": 0.25,
        "speed_tg": 128,
        "t": 1.05,
    }
    request = only(json.dumps(row))
    assert request.facts["decode_tok_s"] == pytest.approx(16 / 0.25)
    assert "side by side" in request.notes[0]


# --- noise


def test_ansi_timestamps_and_other_programs_prefixes() -> None:
    noisy = "".join(f"\x1b[32mAug 08 23:02:37 host runner[12]:\x1b[0m {line}\n" for line in PERF.splitlines())
    assert facts(noisy) == facts(PERF)


def test_a_line_wrapped_in_json_is_unwrapped() -> None:
    wrapped = "\n".join(json.dumps({"log": f"{line}\n", "stream": "stderr"}) for line in PERF.splitlines())
    assert facts(wrapped) == facts(PERF)


def test_prompts_with_braces_hide_nothing() -> None:
    assert facts("int main() {\n  if (x) {\n" + PERF) == facts(PERF)
    reply = '{"model":"m","done":true,"eval_count":70,"eval_duration":4297000000}'
    assert facts('{"unfinished": {\n"and": \n' + reply)["n_output"] == 70


def test_very_many_requests_are_counted_not_kept() -> None:
    log = read(PERF * (KEPT_REQUESTS + 10))
    assert log.n_requests == KEPT_REQUESTS + 10
    assert log.n_left_out == 10
    assert len(log.requests) == KEPT_REQUESTS


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_log_breaks_the_reader(data: st.DataObject) -> None:
    """Pieces of real logs, cut anywhere and mixed with rubbish."""
    text = PERF + LOADER + OLD + SERVER_2025 + OLLAMA
    pieces = data.draw(
        st.lists(
            st.one_of(
                st.tuples(st.integers(0, len(text)), st.integers(0, 200)).map(
                    lambda at: text[at[0] : sum(at)]
                ),
                st.text(max_size=40),
                st.sampled_from(
                    [
                        "{",
                        "}",
                        '{"eval_duration": "x"}',
                        '{"timings": {"prompt_ms": null}}',
                        '{"stats": {"tokens_per_second": []}}',
                    ]
                ),
            ),
            max_size=12,
        )
    )
    log = read("\n".join(pieces))
    assert log.n_requests >= len(log.requests)


def test_each_parser_says_what_it_looks_for() -> None:
    names = [parser.name for parser in PARSERS]
    assert len(set(names)) == len(names)
    assert all(parser.looks_for and parser.obtain for parser in PARSERS)


@pytest.mark.skipif(
    "LLMPHASE_SAMPLES" not in os.environ, reason="LLMPHASE_SAMPLES names no folder of real logs"
)
def test_every_real_sample_has_a_request() -> None:
    for path in Path(os.environ["LLMPHASE_SAMPLES"]).iterdir():
        log = read(path.read_text("utf-8"))
        assert log.requests, path.name
        for request in log.requests:
            assert {"prefill_s", "decode_s"} <= request.facts.keys(), path.name
