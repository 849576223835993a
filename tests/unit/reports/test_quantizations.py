"""Quantizations of one model: the line that bytes draw, who is off it, what labels hold."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence

import pytest
import sample_runs as sample

from probes.records import GroupResult, ModelFacts, Origin, Run
from reports.bandwidth_line import Line, Reading, find_line
from reports.charts import bytes_chart
from reports.formats import FORMATS, TerminalStyle
from reports.quantization_section import QuantizationSection, quantization_sections
from reports.quantizations import QuantizedModel, quantized_models, short_label
from reports.report import build_report

MB = 1_000_000
MS = 1e-3


def reading(mb: float, ms: float, noise: float = 0.01) -> Reading:
    return Reading(n_bytes=round(mb * MB), seconds=ms * MS, noise=noise)


def line_of(*readings: Reading) -> Line:
    line, reason = find_line(readings)
    assert line is not None, reason
    return line


# --- the line ------------------------------------------------------------------------------------


def test_exact_points_give_bandwidth_and_constant() -> None:
    # 2 ms + bytes at 10 GB/s: 100 MB take 2 + 10, 200 MB 2 + 20, 400 MB 2 + 40 ms.
    line = line_of(reading(100, 12), reading(200, 22), reading(400, 42))
    assert line.bandwidth_bytes_s == pytest.approx(10e9)
    assert line.constant_s == pytest.approx(2 * MS)
    assert line.on == (0, 1, 2)
    assert line.seconds(300 * MB) == pytest.approx(32 * MS)


def test_the_interval_is_that_of_linear_regression() -> None:
    # Relative residuals, by hand: y = 10.2, 19.8, 40.4, 79.5 ms at 100, 200, 400, 800 MB. Weights 1 / y^2.
    x, y = [100.0, 200.0, 400.0, 800.0], [10.2, 19.8, 40.4, 79.5]
    w = sum(1 / s**2 for s in y)
    wx = sum(a / s**2 for a, s in zip(x, y, strict=True))
    wxx = sum(a * a / s**2 for a, s in zip(x, y, strict=True))
    wxy = sum(a / s for a, s in zip(x, y, strict=True))
    wy = sum(1 / s for s in y)
    determinant = w * wxx - wx**2
    slope, constant = (w * wxy - wx * wy) / determinant, (wxx * wy - wx * wxy) / determinant
    residuals = sum((1 - (constant + slope * a) / s) ** 2 for a, s in zip(x, y, strict=True))
    half = 4.303 * (residuals / 2 * w / determinant) ** 0.5  # t with 2 degrees of freedom
    line = line_of(*(reading(a, s) for a, s in zip(x, y, strict=True)))
    assert line.s_per_byte * 1e9 == pytest.approx(slope)
    assert line.bandwidth_low_bytes_s == pytest.approx(1e9 / (slope + half))
    assert line.bandwidth_high_bytes_s == pytest.approx(1e9 / (slope - half))


def test_a_slow_kernel_does_not_bend_the_line() -> None:
    # The largest file, which pulls most at a line, takes twice what its bytes need (102 ms).
    points = (reading(100, 12), reading(150, 17), reading(200, 22), reading(1000, 204))
    line = line_of(*points)
    assert line.on == (0, 1, 2)
    assert line.bandwidth_bytes_s == pytest.approx(10e9)
    assert [line.is_off(point) for point in points] == [False, False, False, True]
    assert line.excess(points[3]) == pytest.approx(1.0)


def test_noise_excuses_what_share_alone_would_not() -> None:
    quiet = (reading(100, 12), reading(200, 22), reading(400, 42))
    late = reading(300, 40)  # 25 % above the 32 ms of the line
    assert line_of(*quiet, late).is_off(late)
    noisy = dataclasses.replace(late, noise=0.4)
    assert not line_of(*quiet, noisy).is_off(noisy)


def test_two_points_have_a_line_without_interval() -> None:
    line = line_of(reading(100, 12), reading(200, 22))
    assert line.bandwidth_bytes_s == pytest.approx(10e9)
    assert (line.bandwidth_low_bytes_s, line.constant_low_s) == (None, None)


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ([], "one amount of bytes"),
        ([(100, 10)], "one amount of bytes"),
        ([(100, 10), (110, 11), (115, 12)], "differ too little"),
        ([(100, 30), (200, 20), (400, 10)], "does not take longer where it reads more"),
        ([(100, 10), (200, 40), (400, 41), (800, 200)], "no common line"),
    ],
)
def test_where_there_is_no_line_it_says_why(points: Sequence[tuple[float, float]], reason: str) -> None:
    line, why = find_line([reading(mb, ms) for mb, ms in points])
    assert line is None
    assert why is not None
    assert reason in why


# --- models --------------------------------------------------------------------------------------

Q4 = {"Q4_K": 60 * MB, "Q6_K": 20 * MB}


def file(label: str, mb: float, **changes: object) -> ModelFacts:
    """One quantization of the sample model; all of it is read for each token."""
    size = round(mb * MB)
    kept = {
        "path": f"/models/{label}.gguf",
        "model_bytes": size,
        "bytes_per_token": size,
        "bytes_by_type": {label.split(" ")[0]: size},
    }
    return sample.model(quantization=label, **kept | changes)


def timed(model: ModelFacts, *, ms: float, prefill: float = 1.0, **changes: object) -> GroupResult:
    """Decode of `ms` at an empty cache; prefill `prefill` times as fast as the sample's."""
    factor = sample.decode_step_ns(0) / 1e6 / ms
    group = sample.group(facts=model, speed=factor, **changes)
    cells = [
        dataclasses.replace(
            cell,
            samples=tuple(
                dataclasses.replace(
                    one,
                    head_ns=round(one.head_ns * factor / prefill),
                    tail_ns=round(one.tail_ns * factor / prefill),
                )
                for one in cell.samples
            ),
        )
        for cell in group.cells
    ]
    return dataclasses.replace(group, cells=tuple(cells))


def four(**changes: object) -> Run:
    """Bytes at 10 GB/s and 2 ms; Q3_K_M takes half as long again (18 instead of 12 ms)."""
    return sample.run(
        timed(file("F16", 400), ms=42, prefill=1.3, **changes),
        timed(file("Q8_0", 200), ms=22, **changes),
        timed(file("Q4_K - Medium", 120), ms=14, prefill=0.8, **changes),
        timed(file("Q3_K - Medium", 100), ms=18, prefill=0.6, **changes),
    )


def only_model(run: Run) -> QuantizedModel:
    models = quantized_models(run)
    assert len(models) == 1
    return models[0]


def only_section(run: Run) -> QuantizationSection:
    sections = quantization_sections(run)
    assert len(sections) == 1
    return sections[0]


def said(run: Run) -> str:
    return "\n".join(only_section(run).sentences)


@pytest.mark.parametrize(
    ("label", "short"),
    [
        ("Q4_K - Medium", "Q4_K_M"),
        ("Q3_K - Small", "Q3_K_S"),
        ("Q2_K - Medium", "Q2_K"),
        ("IQ4_XS - 4.25 bpw", "IQ4_XS"),
        ("IQ3_S mix - 3.66 bpw", "IQ3_M"),
        ("all F32", "F32"),
        ("Q8_0", "Q8_0"),
        ("\x1b[31mred", "[31mred"),
    ],
)
def test_labels_are_those_of_the_tools(label: str, short: str) -> None:
    assert short_label(label) == short


def test_every_quantization_stands_beside_the_line() -> None:
    comparison = only_model(four()).comparisons[0]
    assert [one.label for one in comparison.variants] == ["F16", "Q8_0", "Q4_K_M", "Q3_K_M"]
    assert (comparison.depth_tokens, comparison.prompt_tokens) == (0, 2048)
    assert comparison.line is not None
    assert comparison.line.bandwidth_bytes_s == pytest.approx(10e9, rel=0.01)
    assert [one.is_off_line for one in comparison.variants] == [False, False, False, True]
    slow = comparison.variants[3]
    assert slow.line_s == pytest.approx(12 * MS, rel=0.01)
    assert slow.off_line == pytest.approx(0.5, abs=0.02)
    # 100 MB over 134,515,008 weights: 5.95 bits each.
    assert slow.bits_per_weight == pytest.approx(5.947, abs=0.001)


def test_the_report_says_who_follows_who_does_not_and_whose_prompt_is_slow() -> None:
    text = said(four())
    assert "Decode goes by the bytes for 3 of 4: a token takes" in text
    assert re.search(r"read its weights at 9\.\d\d GiB/s \(95 %: [\d.]+ to [\d.]+ GiB/s\)", text)  # 10 GB/s
    assert "Q3_K_M takes 50 % longer than its bytes explain" in text
    assert "its kernels are slow on this backend (CPU)" in text
    # 1.3 / 0.6 = 2.17 and 1.3 / 0.8 = 1.625 times as long as with F16; Q8_0 1.3 times.
    assert "read fastest with F16; it takes longer with Q3_K_M by 117 %, Q4_K_M by 62 %, Q8_0 by 30 %" in text


def test_faster_than_the_line_is_said_too() -> None:
    run = four()
    fast = timed(file("Q4_0", 150), ms=10)  # the line says 17 ms
    assert "Q4_0 takes 41 % less than its bytes explain" in said(
        dataclasses.replace(run, groups=(*run.groups, fast))
    )


def test_two_quantizations_show_a_line_and_nobody_off_it() -> None:
    run = four()
    text = said(dataclasses.replace(run, groups=run.groups[:2]))
    assert "By these two, a token takes 2.0" in text
    assert "longer than its bytes" not in text


def test_variants_made_from_quantized_weights_are_named() -> None:
    run = four()
    origins = [
        None,
        *(Origin(path="/models/F16.gguf", quantization="F16", is_quantized=q) for q in (0, 1, 1)),
    ]
    groups = tuple(
        dataclasses.replace(group, model=dataclasses.replace(group.model, made_from=origin))
        for group, origin in zip(run.groups, origins, strict=True)
    )
    text = said(dataclasses.replace(run, groups=groups))
    assert "(--requantize): Q4_K_M, Q3_K_M. Their speed is that of the type, the quality" in text
    assert "without an importance matrix: Q8_0." in text
    assert "Slower than their source" not in text  # the source is the fastest
    faster = dataclasses.replace(groups[1], cells=timed(groups[1].model, ms=22, prefill=2.0).cells)
    text = said(dataclasses.replace(run, groups=(groups[0], faster, *groups[2:])))
    assert "Slower than their source F16 at that: Q4_K_M, Q3_K_M." in text


def test_labels_that_hold_something_else_are_named() -> None:
    mixed = file("Q6_K", 130, bytes_by_type={"Q8_0": 110 * MB, "Q6_K": 20 * MB})
    run = sample.run(timed(mixed, ms=15), timed(file("Q8_0", 200), ms=22))
    text = said(run)
    # 20 of 130 MB; the sample's rows hold 576 weights.
    assert "rows of 576 weights are no multiple of the 256" in text
    assert "Q6_K holds 15 % Q6_K, mostly Q8_0." in text
    holds = only_section(run).holds
    assert holds.rows[1] == ("Q6_K", "124 MiB", "7.73", "124 MiB", "Q8_0 85 %, Q6_K 15 %")


# --- which belong together -----------------------------------------------------------------------


def test_one_model_alone_has_no_section() -> None:
    assert quantized_models(sample.run()) == ()
    assert quantized_models(sample.run(sample.group(), sample.group())) == ()  # the same file twice


def test_another_model_is_left_out_and_told_by_what() -> None:
    run = four()
    other = timed(file("Q8_0", 200, name="Other", n_layers=32, n_vocab=32_000), ms=30)
    found = only_model(dataclasses.replace(run, groups=(*run.groups, other)))
    assert len(found.comparisons[0].variants) == 4
    assert found.strangers == (
        "Other is another model: layers 32 instead of 30, vocabulary 32000 instead of 49152",
    )


def test_a_file_with_its_own_output_layer_is_the_same_model() -> None:
    run = four()
    untied = dataclasses.replace(run.groups[1].model, tied_output=False, n_params=134_515_008 + 49_152 * 576)
    groups = (run.groups[0], dataclasses.replace(run.groups[1], model=untied), *run.groups[2:])
    found = only_model(dataclasses.replace(run, groups=groups))
    assert len(found.comparisons[0].variants) == 4
    assert "output layer of its own" in " ".join(found.comparisons[0].unlike)


def test_pruned_weights_make_another_model() -> None:
    run = four()
    pruned = timed(file("Q8_0", 150, n_params=100_000_000), ms=20)
    found = only_model(dataclasses.replace(run, groups=(*run.groups, pruned)))
    # The output layer, 49,152 * 576 = 28,311,552 weights, is shared with the embedding in both.
    assert "128,311,552 weights instead of 162,826,560, the output layer counted" in found.strangers[0]


def test_different_names_are_said() -> None:
    run = four()
    renamed = dataclasses.replace(
        run.groups[0], model=dataclasses.replace(run.groups[0].model, name="Chat \x1b[31mtune")
    )
    found = only_model(dataclasses.replace(run, groups=(renamed, *run.groups[1:])))
    assert "their names differ (Chat [31mtune, SmolLM2 135M Instruct)" in found.comparisons[0].unlike[0]


def test_each_setting_is_compared_by_itself() -> None:
    run = four()
    fewer = four(settings=sample.settings(threads=1)).groups
    found = only_model(dataclasses.replace(run, groups=(*run.groups, *fewer)))
    assert [one.setting for one in found.comparisons] == ["threads 2", "threads 1"]
    section = only_section(dataclasses.replace(run, groups=(*run.groups, *fewer)))
    assert section.speeds.columns[0].title == "setting"
    assert len(section.speeds.rows) == 8
    assert any(text.startswith("With threads 1: ") for text in section.sentences)


def scattered(group: GroupResult, *, passes: int, factors: Sequence[float]) -> GroupResult:
    """The first passes of a group, each as many times slower as a factor says."""
    cells = tuple(
        dataclasses.replace(
            cell,
            samples=tuple(
                dataclasses.replace(
                    one,
                    tail_ns=round(one.tail_ns * factor),
                    decode_ns=tuple(round(ns * factor) for ns in one.decode_ns),
                )
                for one, factor in zip(cell.samples[:passes], factors, strict=True)
            ),
        )
        for cell in group.cells
    )
    return dataclasses.replace(group, cells=cells)


def test_what_scatters_is_not_judged() -> None:
    run = four()
    # Three passes at 1, 2 and 3 times: the interval of their mean is wider than the mean.
    noisy = scattered(run.groups[3], passes=3, factors=(1, 2, 3))
    changed = dataclasses.replace(run, groups=(*run.groups[:3], noisy))
    slow = only_model(changed).comparisons[0].variants[3]
    assert (slow.is_off_line, slow.is_prefill_slower) == (False, False)
    assert slow.off_line is not None
    assert slow.off_line > 1
    text = said(changed)
    assert "Decode goes by the bytes for all of 3" in text
    assert "Too uncertain to be judged: Q3_K_M" in text
    assert only_section(changed).speeds.rows[3][5].endswith("%?")


def test_single_passes_are_not_judged_at_all() -> None:
    run = four()
    single = tuple(scattered(group, passes=1, factors=(1,)) for group in run.groups)
    text = said(dataclasses.replace(run, groups=single))
    assert "too uncertain (fewer than three passes" in text
    assert "longer than its bytes" not in text
    assert "it takes longer with" not in text


def test_layers_in_different_memories_draw_no_line() -> None:
    run = four()
    apart = dataclasses.replace(run.groups[0], resolved=sample.resolved(n_gpu_layers=20, backend="CUDA,CPU"))
    found = only_model(dataclasses.replace(run, groups=(apart, *run.groups[1:]))).comparisons[0]
    assert found.line is None
    assert found.line_reason is not None
    assert "not placed alike (F16 20 on CUDA,CPU, Q8_0 0 on CPU" in found.line_reason


def test_a_quantization_that_failed_stays_in_the_table() -> None:
    run = four()
    failed = dataclasses.replace(
        sample.failed_group(), model=file("Q5_K - Medium", 140), settings=run.groups[0].settings
    )
    section = only_section(dataclasses.replace(run, groups=(*run.groups, failed)))
    row = next(row for row in section.speeds.rows if row[0] == "Q5_K_M")
    assert row[2:] == ("–", "–", "16.0 ms", "–", "–", "–")  # 2 ms and 140 MB at 10 GB/s: what it would take
    assert "for 3 of 4" in section.sentences[0]


def test_repacking_given_up_for_one_is_said() -> None:
    run = four()
    plain = dataclasses.replace(run.groups[1], settings=sample.settings(repack=False))
    found = only_model(dataclasses.replace(run, groups=(run.groups[0], plain, *run.groups[2:])))
    assert len(found.comparisons) == 1
    assert found.comparisons[0].unlike == ("Q8_0 ran without repacked weights, the others with",)


# --- formats -------------------------------------------------------------------------------------


def test_json_has_the_figures() -> None:
    text = FORMATS["json"].render(build_report(four()), TerminalStyle(width=80, colour=False, unicode=True))
    comparison = json.loads(text)["run"]["quantizations"][0]["comparisons"][0]
    assert comparison["line"]["bandwidth_bytes_s"] == pytest.approx(10e9, rel=0.01)
    assert [one["is_off_line"] for one in comparison["variants"]] == [False, False, False, True]
    assert comparison["variants"][0]["bytes_by_type"] == {"F16": 400 * MB}


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_words_and_tables_are_in_the_other_forms(form: str) -> None:
    text = FORMATS[form].render(build_report(four()), TerminalStyle(width=80, colour=False, unicode=True))
    plain = re.sub(r"\s+", " ", text.replace("\\", ""))
    assert "Q3_K_M takes 50 % longer than its bytes explain" in plain
    assert "What each label holds" in plain
    assert "Speed by bytes: decode at depth 0, prefill of 2,048 tokens" in plain


def test_csv_rows_carry_the_bytes() -> None:
    rows = build_report(four()).rows
    assert {(row.quantization, row.bytes_per_token) for row in rows} == {
        ("F16", 400 * MB),
        ("Q8_0", 200 * MB),
        ("Q4_K - Medium", 120 * MB),
        ("Q3_K - Medium", 100 * MB),
    }


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize("unicode", [True, False])
def test_the_section_fits_the_width(width: int, unicode: bool) -> None:
    style = TerminalStyle(width=width, colour=False, unicode=unicode)
    text = FORMATS["terminal"].render(build_report(four()), style)
    assert max(len(line) for line in text.splitlines()) <= width
    assert unicode or text.isascii()


def test_the_chart_marks_who_is_off_the_line() -> None:
    chart = bytes_chart(only_section(four()).chart, width=72, unicode=True)
    assert chart is not None
    assert chart.count("●") == 3
    assert chart.count("○") == 2  # one point, and its meaning in the title
    assert "weights read for a token, from 95.4 MiB to 381 MiB" in chart
    assert "Q3_K_M" in chart.splitlines()[-2]
    assert "F16" in chart.splitlines()[-2]


def test_a_single_point_is_no_chart() -> None:
    run = four()
    unmeasured = dataclasses.replace(run.groups[1], cells=())
    section = only_section(dataclasses.replace(run, groups=(run.groups[0], unmeasured)))
    assert bytes_chart(section.chart, width=72, unicode=True) is None
