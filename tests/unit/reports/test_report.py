"""The headline's sentences, the tables and the renderers, on good and on troubled runs."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import pytest
import sample_runs as sample
from rich.cells import cell_len

from probes.errors import UsageError
from probes.records import Run
from reports import headline
from reports.formats import FORMATS, TerminalStyle, format_for_ending
from reports.phases import fit_phases
from reports.report import build_report

PLAIN = TerminalStyle(width=80, colour=False, unicode=True)


def terminal(run: Run, *, width: int = 80, colour: bool = False, unicode: bool = True) -> str:
    style = TerminalStyle(width=width, colour=colour, unicode=unicode)
    return FORMATS["terminal"].render(build_report(run), style)


def first_sentence(run: Run) -> str:
    return build_report(run).models[0].headline[0]


def test_the_wait_is_split_by_phase() -> None:
    group = sample.group()
    cell = headline.longest_cell(group)
    assert cell
    wait = headline.wait_at(group, fit_phases(group), cell)
    assert wait
    assert (wait.prompt_tokens, wait.output_tokens) == (2048, 256)
    # 2 ms + 2.2 ms * 2048 + 350 ns * 2048^2 = 5975.6 ms, times 1.001.
    assert wait.prefill_s == pytest.approx(5.9756 * 1.001, rel=1e-4)
    # 255 steps at depths 2048 to 2302, mean 2175: 6.6 ms + 1.305 ms, times 1.001, + 6.25 us.
    assert wait.decode_s == pytest.approx(255 * (7.905e-3 * 1.001 + 6.25e-6), rel=3e-3)
    # 4097 us once and 93.5 us for each token.
    assert wait.rest_s == pytest.approx(0.004097 + 256 * 93.5e-6)
    assert wait.low_s is not None
    assert wait.high_s is not None
    assert wait.low_s < wait.total_s < wait.high_s


def test_the_answer_comes_first_and_adds_up() -> None:
    assert first_sentence(sample.run()) == (
        "At 2,048 prompt and 256 output tokens you wait 8.03 ± 0.03 s: 5.98 s (74 %) reading the prompt, "
        "2.02 s (25 %) writing the answer, the rest tokenizing and sampling."
    )


def test_the_two_rates_are_named_apart_without_blame() -> None:
    text = " ".join(build_report(sample.run()).models[0].headline)
    assert "Reading runs at 342 tok/s, writing at 127 tok/s" in text
    assert "The slower rate is not by itself the longer wait." in text
    assert "Loading comes first, once: 205 ms with the file in memory, 450 ms from disk." in text


def test_a_single_length_answers_from_its_own_rate() -> None:
    group = sample.group(cells=[sample.cell(128)])
    assert first_sentence(sample.run(group)).startswith("At 128 prompt and 256 output tokens you wait 2.0")


def test_decode_alone_is_an_answer_too() -> None:
    text = first_sentence(sample.run(sample.group(cells=[sample.cell(0)])))
    assert text.startswith("256 tokens from an empty cache take 1.7")


def test_with_two_passes_no_interval_is_claimed() -> None:
    group = sample.group(cells=[sample.cell(128, passes=2)], passes=2)
    assert "±" not in first_sentence(sample.run(group))
    table = build_report(sample.run(group)).models[0].phases
    # 290.6 ms and 288.6 ms: 2 + 281.6 + 5.7344 = 289.33 ms, times 1.006 and 0.999.
    assert table.rows[0][1] == "290 (289–291) ms"


def test_reading_alone_is_an_answer_too() -> None:
    cell = sample.cell(512, output_tokens=0)
    report = build_report(sample.run(sample.group(cells=[cell, sample.cell(128, output_tokens=0)])))
    # 1220.15 ms as in the rows, times 1.001.
    assert report.models[0].headline[0] == (
        "Reading 512 prompt tokens takes 1.22 ± 0.01 s; writing was not measured."
    )
    assert len(report.models[0].charts.ttft) == 2
    assert report.models[0].charts.wait == ()


def test_predictions_say_from_where_on_they_extrapolate() -> None:
    cells = [*map(sample.cell, (128, 512, 2048)), sample.skipped_cell(4096)]
    table = build_report(sample.run(sample.group(cells=cells))).models[0].phases
    assert any("Beyond 2,048 tokens it extrapolates." in note for note in table.notes)
    assert table.rows[-1][1].startswith("≈ 14.")
    assert table.rows[-1][-1] == "fit"


def test_nothing_measured_says_why() -> None:
    assert first_sentence(sample.run(sample.failed_group())).startswith(
        "Nothing could be measured: memory: 41.2 GiB needed"
    )
    model = build_report(sample.run(sample.failed_group())).models[0]
    assert model.beside is None
    assert model.load is None
    assert model.placement.facts[0].value.startswith("unknown (memory:")


def test_several_models_are_compared_at_a_length_all_have() -> None:
    fast = sample.group(speed=2.0, facts=sample.model(name="Fast"), cells=[sample.cell(512, speed=2.0)])
    report = build_report(sample.run(sample.group(), fast))
    assert len(report.comparison) == 1
    assert report.comparison[0].startswith(
        "At 512 prompt and 256 output tokens Fast has the shortest wait: 1.5"
    )
    apart = dataclasses.replace(fast, cells=(sample.cell(256, speed=2.0),))
    assert "not compared" in build_report(sample.run(sample.group(), apart)).comparison[0]
    assert build_report(sample.run()).comparison == ()


def test_groups_that_share_a_name_are_told_apart() -> None:
    other = sample.group(facts=sample.model(quantization="Q8_0"))
    names = [model.name for model in build_report(sample.run(sample.group(), other, other)).models]
    assert names == [
        "SmolLM2 135M Instruct Q4_1",
        "SmolLM2 135M Instruct Q8_0 #1",
        "SmolLM2 135M Instruct Q8_0 #2",
    ]


def test_resolved_and_requested_layers_are_two_facts() -> None:
    placement = build_report(sample.run(sample.gpu_group())).models[0].placement
    assert placement.facts[0].value == "12 of 31 on a device (asked: 12)"
    silent = sample.group(resolved=sample.resolved(n_gpu_layers=None, flash_attn=None, graph_splits=None))
    values = [fact.value for fact in build_report(sample.run(silent)).models[0].placement.facts]
    assert values[0] == "unknown (the engine did not say) (asked: left to the engine)"
    assert values[2] == "unknown (the engine did not say) (asked: auto)"
    assert values[3] == "unknown (the engine did not say)"


def test_time_that_phases_exceed_is_not_printed_as_negative() -> None:
    request = sample.request()
    short = dataclasses.replace(request, wall_ns=request.wall_ns - 5 * sample.MS)
    beside = build_report(sample.run(sample.group(requests=(short,)))).models[0].beside
    assert beside
    value = next(fact.value for fact in beside.facts if fact.name == "unaccounted in a request")
    assert value.startswith("none: the phases explain all of 6.2")


def test_defaults_are_marked() -> None:
    facts = {fact.name: fact for fact in build_report(sample.run()).models[0].settings.facts}
    assert facts["threads"].is_default
    assert not facts["output-tokens"].is_default
    assert "threads 2*" in terminal(sample.run())


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    for run in (sample.run(), sample.troubled_run(), sample.run(sample.group(), sample.gpu_group())):
        text = terminal(run, width=width, unicode=unicode)
        assert max(cell_len(line) for line in text.splitlines()) <= width


def test_ascii_is_ascii_and_without_colour_there_is_no_code() -> None:
    for run in (sample.run(), sample.troubled_run()):
        assert terminal(run, unicode=False).isascii()
        assert "\x1b" not in terminal(run)


def test_colour_adds_codes_and_changes_no_letter() -> None:
    coloured = terminal(sample.run(), colour=True)
    assert "\x1b[" in coloured
    plain = "\n".join(line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines())
    assert plain.strip() == terminal(sample.run()).strip()


def test_a_hostile_model_name_is_shown_and_does_nothing() -> None:
    text = terminal(sample.troubled_run(), colour=True)
    assert "[red]evil[31mname[/red]" in text
    assert "\x07" not in text
    assert "\u202e" not in text


def test_a_narrow_page_breaks_figures_and_cuts_none() -> None:
    words = terminal(sample.troubled_run(), width=50).split()
    assert {"289", "1.39", "2.62", "14.7", "9.09"} <= set(words)


def test_the_report_goes_from_answer_to_charts() -> None:
    text = terminal(sample.troubled_run())
    order = [
        "you wait",
        "Phases by prompt length",
        "Placement",
        "To know before trusting the figures",
        "One request, load included",
        "Time to first token [s]",
        "Decode rate [tokens/s]",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_no_format_prints_what_is_no_number() -> None:
    for run in (sample.run(), sample.troubled_run()):
        report = build_report(run)
        for renderer in FORMATS.values():
            text = renderer.render(report, PLAIN)
            assert not re.search(r"\b(nan|inf|NaN|Infinity|None)\b", text)
            assert text.endswith("\n")


def test_markdown_tables_have_equal_columns() -> None:
    text = FORMATS["markdown"].render(build_report(sample.troubled_run()), PLAIN)
    block = text.split("### Phases by prompt length\n\n")[1].split("\n\n")[0].splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block}) == 1
    assert len(block) == 2 + 6
    assert r"## =cmd\|' /C calc'\!A0 \[red\]evil" in text


def test_a_report_without_charts_still_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotext", None)
    text = terminal(sample.run())
    assert "No line charts" in text
    assert "One request, load included" in text


def test_an_empty_run_prints() -> None:
    run = dataclasses.replace(sample.run(finished=False, engine=None), groups=())
    text = terminal(run)
    assert "interrupted" in text
    assert "unknown (no worker has reported)" in text


def test_endings_name_formats() -> None:
    assert [format_for_ending(e) for e in (".csv", ".JSON", ".jsonl", ".md", ".txt")] == [
        "csv",
        "json",
        "jsonl",
        "markdown",
        "terminal",
    ]
    with pytest.raises(UsageError, match=r"'\.xlsx'.*--format"):
        format_for_ending(".xlsx")


def test_the_terminal_format_needs_no_pandas_and_importing_reports_needs_nothing() -> None:
    script = (
        "import sys, reports; import reports.formats\n"
        "heavy = {'pandas', 'plotext', 'numpy', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "import sample_runs as s\n"
        "from reports.report import build_report\n"
        "from reports.formats import FORMATS, TerminalStyle\n"
        "style = TerminalStyle(width=80, colour=False, unicode=True)\n"
        "FORMATS['terminal'].render(build_report(s.run()), style)\n"
        "assert 'pandas' not in sys.modules\n"
    )
    tests = str(sample.__file__).rsplit("/", 1)[0]
    path = [tests, str(tests).rsplit("/", 1)[0]]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
