"""A file of llama-bench as a report: the same parts, the same renderers, and what it can not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.bench_report import build_bench_report
from reports.formats import FORMATS, TerminalStyle
from reports.imports.llama_bench import parse_llama_bench
from reports.llama_bench import BenchFile, BenchTest, with_samples
from reports.report import Report

DATA = Path(__file__).parents[2] / "data" / "llama-bench"
STYLE = TerminalStyle(width=80, colour=False, unicode=True)
MS = 1_000_000


def timed(*samples_ms: float, prompt: int = 0, gen: int = 0, depth: int = 0, **changes: Any) -> BenchTest:
    plain: dict[str, Any] = {
        "build_commit": "abc1234",
        "model_type": "llama 7B Q4_0",
        "model_size": 2**30,
        "model_n_params": 7 * 10**9,
        "n_threads": 4,
        "n_gpu_layers": 99,
    }
    test = BenchTest(n_prompt=prompt, n_gen=gen, n_depth=depth, avg_ts=0.0, **plain | changes)
    return with_samples(test, tuple(round(sample * MS) for sample in samples_ms))


def report(*tests: BenchTest) -> Report:
    return build_bench_report(BenchFile(tests=tests), "bench.jsonl")


def codes(made: Report) -> list[str]:
    return [notice.code for notice in made.notices]


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "sql", "md"])
def test_every_renderer_takes_it(form: str) -> None:
    file = parse_llama_bench((DATA / f"sample.{form}").read_text(encoding="utf-8"))
    made = build_bench_report(file, f"sample.{form}")
    for name, renderer in FORMATS.items():
        text = renderer.render(made, STYLE)
        assert text.endswith("\n"), name
        assert "None" not in text, name
    screen = FORMATS["terminal"].render(made, STYLE)
    assert max(map(len, screen.splitlines())) <= 80
    assert f"llama-bench, build 0c1e570 (1): sample.{form}" in " ".join(screen.split())
    assert "Prefill time [ms]" in screen
    assert "Decode rate" in screen


def test_rows_have_our_units() -> None:
    prompt, answer = report(timed(900, 1000, 1100, prompt=500), timed(200, 100, 300, gen=4, depth=64)).rows
    assert (prompt.phase, prompt.prompt_tokens, prompt.depth_tokens, prompt.samples) == ("prefill", 500, 0, 3)
    assert prompt.median_s == pytest.approx(1.0)
    assert prompt.tokens_per_s == pytest.approx(500.0)
    # four tokens in 200 ms: 50 ms each
    assert (answer.phase, answer.prompt_tokens, answer.depth_tokens, answer.output_tokens) == (
        "decode",
        64,
        64,
        4,
    )
    assert answer.median_s == pytest.approx(0.05)
    assert answer.tokens_per_s == pytest.approx(20.0)
    assert (prompt.architecture, prompt.quantization, prompt.n_gpu_layers_requested) == ("llama", "Q4_0", 99)
    assert (prompt.n_gpu_layers, prompt.flash_attn, prompt.n_ctx) == (None, None, None)


def test_the_phase_model_is_fitted_where_lengths_allow() -> None:
    # prefill 10 ms + 2 ms a token; decode 20 ms + 0.01 ms a token of depth, at the mean depth of 11 steps
    lengths, depths = (100, 200, 400), (0, 1000, 2000)
    prompts = [timed(*[10 + 2 * n] * 3, prompt=n) for n in lengths]
    answers = [timed(*[11 * (20 + 0.01 * (d + 5))] * 3, gen=11, depth=d) for d in depths]
    (model,) = report(*prompts, *answers).models
    assert model.model.prefill is not None
    assert model.model.prefill.value(1000) == pytest.approx(2.010, rel=1e-3)
    assert model.model.decode is not None
    assert model.model.decode.value(3000) == pytest.approx(0.050, rel=1e-3)
    assert model.beside is not None
    words = {fact.name: fact.value for fact in model.beside.facts}
    assert words["prefill"].startswith("10.0 ms + 2.00 ms a token")
    assert words["decode"].startswith("20.0 ms a token, 10.0 ms more for each thousand of depth")
    # 400 tokens take 810 ms; 255 steps from depth 400, mean depth 527: 25.27 ms each, 6.44 s
    assert "you wait 7.25 s: 810 ms (11 %) reading the prompt, 6.44 s (89 %) writing" in model.headline[0]


def test_a_single_depth_has_to_do_and_that_is_said() -> None:
    (model,) = report(timed(1000, 1000, 1000, prompt=500), timed(40, 40, 40, gen=4)).models
    # 255 steps of 10 ms
    assert "you wait 3.55 s" in model.headline[0]
    assert any("measured at depth 0 and taken for the whole answer" in text for text in model.headline)
    assert model.model.decode is None


def test_prefill_at_a_depth_enters_neither_fit_nor_chart() -> None:
    (model,) = report(timed(5, prompt=64), timed(9000, prompt=64, depth=4096), timed(10, prompt=128)).models
    assert [point.tokens for point in model.charts.ttft] == [64, 128]
    assert model.charts.ttft_title == "Prefill time"


def test_without_one_of_the_phases() -> None:
    (reading,) = report(timed(1000, prompt=500)).models
    assert reading.headline == (
        "Reading runs at 500 tok/s.",
        "No wait is told: writing was not measured from an empty cache on.",
    )
    (writing,) = report(timed(100, gen=10)).models
    assert "reading was not measured" in writing.headline[-1]


def test_settings_make_parts_of_their_own() -> None:
    made = report(
        timed(9, prompt=8, n_threads=1), timed(5, prompt=8, n_threads=2), timed(4, gen=8, n_threads=2)
    )
    assert [model.name for model in made.models] == [
        "llama 7B Q4_0 (n_threads 1)",
        "llama 7B Q4_0 (n_threads 2)",
    ]
    assert [len(model.phases.rows) for model in made.models] == [1, 2]


def test_builds_are_kept_apart() -> None:
    made = report(timed(9, prompt=8), timed(5, prompt=8, build_commit="fff0000"))
    assert len(made.models) == 2
    assert "build_commit fff0000" in made.models[1].name


def test_what_was_measured_last_counts() -> None:
    made = report(
        timed(500, prompt=8, test_time="2026-01-02T00:00:00Z"),
        timed(900, prompt=8, test_time="2026-01-01T00:00:00Z"),
    )
    assert codes(made) == ["measured-again"]
    (row,) = made.rows
    assert row.median_s == pytest.approx(0.5)


def test_prompt_and_answer_as_one_belong_to_no_phase() -> None:
    made = report(timed(1000, prompt=100, gen=10))
    assert codes(made) == ["phases-together"]
    (row,) = made.rows
    assert (row.phase, row.warnings) == ("request", "phases-together")
    assert row.tokens_per_s == pytest.approx(110.0)
    assert made.models[0].charts.ttft == ()


def test_averages_are_named_as_such() -> None:
    made = build_bench_report(parse_llama_bench((DATA / "sample.csv").read_text()), "sample.csv")
    assert codes(made) == ["averages-only"]
    first = made.rows[0]
    assert (first.samples, first.ci_low_s, first.min_s) == (None, None, None)
    assert first.median_s == first.mean_s == pytest.approx(0.201586107)
    # 31.837411 of 319.070591 tok/s
    assert first.stddev_s == pytest.approx(0.201586107 * 31.837411 / 319.070591)


def test_names_from_the_file_are_harmless() -> None:
    evil = "\x1b[31mevil\n| `x` [red]"
    made = report(timed(9, prompt=8, model_type=evil, cpu_info=evil, gpu_info=evil, build_commit=evil))
    for name, renderer in FORMATS.items():
        assert "\x1b" not in renderer.render(made, STYLE), name
