"""Histories: which runs belong together, and what they say."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
import sample_runs as sample

from probes.errors import UsageError
from probes.records import Run
from reports import measured
from reports.formats import HISTORY_FORMATS, TerminalStyle
from reports.history import History, build_history, digest
from reports.history_words import sentences

STYLE = TerminalStyle(width=80, colour=False, unicode=True)


def run(day: int, *, speed: float = 1.0, version: str = "1", machine: Any = None, **changes: Any) -> Run:
    """A run at midnight of this day of 2026."""
    month, date = divmod(day, 28)
    group = sample.group(speed=speed, **changes)
    return sample.run(
        group,
        run_id=f"2026{month + 1:02}{date + 1:02}T000000Z-{day:06x}",
        started_at=f"2026-{month + 1:02}-{date + 1:02}T00:00:00Z",
        engine=sample.engine(version=f"engine {version}", commit=None),
        machine=machine or sample.machine(),
    )


def history(*runs: Run, names: tuple[str, ...] = (), prompt_tokens: int | None = None) -> History:
    return build_history([(one.run_id, digest(one)) for one in runs], names, prompt_tokens)


def refusal(*runs: Run, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        history(*runs, **options)
    assert caught.value.reason == "no-history"
    return str(caught.value)


def test_figures_are_those_of_the_report() -> None:
    one = run(0)
    (group,) = one.groups
    cell = next(cell for cell in group.cells if cell.prompt_tokens == 512)
    (point,) = history(one, prompt_tokens=512).points
    ttft, decode = measured.ttft(group, cell), measured.decode(cell)
    assert ttft is not None
    assert decode is not None
    assert point.ttft_s == pytest.approx(ttft.median)
    assert point.decode_tok_s == pytest.approx(1 / decode.summary.median)


def test_digests_are_json() -> None:
    made = digest(sample.troubled_run())
    assert json.loads(json.dumps(made)) == made
    assert digest(sample.run(sample.failed_group())) == []


def test_a_start_that_is_no_time_has_no_place() -> None:
    assert digest(sample.run(started_at="yesterday")) == []


def test_the_commonest_length_of_the_longest() -> None:
    assert history(run(0)).prompt_tokens == 2048
    short = run(1, cells=(sample.cell(0), sample.cell(128)))
    shorter = run(2, cells=(sample.cell(0), sample.cell(128)))
    found = history(run(0), short, shorter)
    assert found.prompt_tokens == 128
    assert len(found.points) == 3


def test_runs_without_the_length_are_told() -> None:
    found = history(run(0), run(1, cells=(sample.cell(128),)), prompt_tokens=2048)
    assert len(found.points) == 1
    assert "1 without a prompt of 2,048 tokens left out." in found.notes


def test_other_models_machines_and_settings_are_left_out() -> None:
    other = run(1, facts=sample.model(name="Other"))
    elsewhere = run(2, machine=sample.machine(cpu_name="Another CPU"))
    faster = run(3, resolved=sample.resolved(threads=8))
    found = history(other, elsewhere, faster, run(4), run(5))
    assert [point.run_id[:8] for point in found.points] == ["20260105", "20260106"]
    assert found.notes == (
        "1 measured on other machines left out.",
        "1 measured with other settings left out.",
    )


def test_rare_settings_part_runs_too() -> None:
    unusual = run(0, settings=sample.settings(repack=False))
    found = history(unusual, run(1), run(2))
    assert len(found.points) == 2
    assert "repack False" in history(unusual).settings


@pytest.mark.parametrize(
    "name",
    ["other", "Other Q4_1", "other.gguf", "/models/other.gguf"],
)
def test_a_model_by_name_file_or_path(name: str) -> None:
    other = run(1, facts=sample.model(name="Other", path="/models/other.gguf"))
    assert history(other, run(2), names=(name,)).model == "Other Q4_1"


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    assert "SmolLM2 135M Instruct Q4_1" in refusal(run(0), names=("nothing",))


def test_an_unknown_length_is_refused_with_those_there_are() -> None:
    assert "0, 128, 512, 2,048" in refusal(run(0), prompt_tokens=777)


def test_before_the_first_run() -> None:
    assert "llmphase profile" in refusal()


class TestDrift:
    def test_with_the_engine(self) -> None:
        runs = [run(day) for day in range(6)]
        runs += [run(day, speed=0.8, version="2") for day in range(6, 12)]
        found = history(*runs)
        ttft, decode = found.drifts
        assert (ttft.metric, decode.metric) == ("ttft", "decode")
        assert (ttft.run_id, ttft.is_with_engine) == (runs[6].run_id, True)
        assert decode.after / decode.before == pytest.approx(0.8, rel=0.01)
        first, second = sentences(found)
        assert first.startswith("Time to first token grew by 25 %")
        assert "with the engine's change from engine 1 to engine 2" in first
        assert second.startswith("Decode rate fell by 20 %")
        assert f"from 2026-01-07T00:00:00Z on (run {runs[6].run_id})" in second

    def test_under_the_same_engine(self) -> None:
        found = history(*[run(day, speed=1.0 if day < 12 else 0.9) for day in range(24)])
        assert all("under the same engine" in text for text in sentences(found))
        assert len(found.drifts) == 2

    def test_none(self) -> None:
        found = history(*[run(day) for day in range(16)])
        assert sentences(found) == ("No drift beyond noise in 16 runs.",)

    def test_few_runs_tell_little(self) -> None:
        (text,) = sentences(history(*[run(day) for day in range(8)]))
        assert text == "No drift beyond noise in 8 runs. Under one engine it takes 16 runs to tell."

    def test_too_few(self) -> None:
        assert sentences(history(run(0))) == ("1 run: too few to tell drift from noise.",)


class TestForms:
    def changing(self) -> History:
        return history(*[run(day, version="1" if day < 5 else "2") for day in range(10)])

    def test_terminal(self) -> None:
        text = HISTORY_FORMATS["terminal"].render(self.changing(), STYLE)
        assert max(map(len, text.splitlines())) <= 80
        assert "Time to first token at 2,048 prompt tokens [s]" in text
        assert "Decode rate at depth 2,048 [tokens/s]" in text
        assert "Engine: a engine 1 b engine 2" in " ".join(text.split())
        assert "2026-01-01" in text

    def test_one_moment_has_no_chart(self) -> None:
        text = HISTORY_FORMATS["terminal"].render(history(run(0)), STYLE)
        assert "[UTC]" not in text

    def test_plain_ascii(self) -> None:
        style = TerminalStyle(width=80, colour=False, unicode=False)
        text = HISTORY_FORMATS["terminal"].render(self.changing(), style)
        assert text.isascii()

    def test_csv(self) -> None:
        rows = list(csv.DictReader(io.StringIO(HISTORY_FORMATS["csv"].render(self.changing(), STYLE))))
        assert len(rows) == 10
        assert (rows[0]["engine"], rows[0]["prompt_tokens"]) == ("engine 1", "2048")
        assert float(rows[0]["ttft_s"]) > 0

    def test_json_and_lines(self) -> None:
        document = json.loads(HISTORY_FORMATS["json"].render(self.changing(), STYLE))
        assert document["schema_version"] == 1
        assert document["engines"] == ["engine 1", "engine 2"]
        lines = HISTORY_FORMATS["jsonl"].render(self.changing(), STYLE).splitlines()
        assert [json.loads(line)["run_id"] for line in lines] == [p["run_id"] for p in document["points"]]

    def test_markdown(self) -> None:
        text = HISTORY_FORMATS["markdown"].render(self.changing(), STYLE)
        assert text.startswith("# History of SmolLM2 135M Instruct Q4\\_1")

    def test_names_are_harmless(self) -> None:
        evil = run(0, facts=sample.model(name="=cmd()\x1b[2J|<b>", quantization="\u202eQ"))
        for form, renderer in HISTORY_FORMATS.items():
            text = renderer.render(history(evil), STYLE)
            assert "\x1b" not in text, form
            assert "\u202e" not in text, form
        assert ",'=cmd()" in HISTORY_FORMATS["csv"].render(history(evil), STYLE)
