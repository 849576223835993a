"""Files of llama-bench, of every format and of older versions, and what is wrong with some of them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import sample_runs as sample

from probes.errors import UsageError
from reports.formats import FORMATS, TerminalStyle
from reports.imports.kinds import kind_of
from reports.imports.llama_bench import parse_llama_bench
from reports.imports.llama_bench_cells import of_llama_bench
from reports.llama_bench import BenchTest
from reports.report import build_report

DATA = Path(__file__).parents[2] / "data" / "llama-bench"
FORMS = ("json", "jsonl", "csv", "sql", "md")
NAMES = ["pp64", "pp256", "tg16", "pp64 @ d128", "pp256 @ d128", "tg16 @ d128"]


def content(form: str) -> str:
    return (DATA / f"sample.{form}").read_text(encoding="utf-8")


def row(**changes: Any) -> dict[str, Any]:
    """A test of 100 prompt tokens in 1 s."""
    plain = {
        "build_commit": "abc1234",
        "model_type": "llama 7B Q4_0",
        "n_threads": 4,
        "n_prompt": 100,
        "n_gen": 0,
    }
    return plain | {"avg_ns": 10**9, "stddev_ns": 10**7, "avg_ts": 100.0, "stddev_ts": 1.0} | changes


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in rows)


def only(text: str) -> BenchTest:
    (test,) = parse_llama_bench(text).tests
    return test


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_llama_bench(text)
    return caught.value


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_tests(form: str) -> None:
    text = content(form)
    assert kind_of(text) == "llama-bench"
    file = parse_llama_bench(text)
    assert [test.name for test in file.tests] == NAMES
    assert file.notes == ()
    for test in file.tests:
        assert (test.build_commit, test.model_type, test.n_threads) == ("0c1e570", "llama 256M Q4_1", 2)
        assert test.avg_ts == pytest.approx((test.n_prompt + test.n_gen) * 1e9 / (test.avg_ns or 0), rel=0.02)


def test_samples_are_used_where_there_are_any() -> None:
    (first, *_) = parse_llama_bench(content("json")).tests
    assert first.samples_ns == (181_122_573, 181_975_580)
    assert first.avg_ns == 181_549_076  # 181,549,076.5
    # 853,007 ns apart: each half of it from the mean, so 853007 / sqrt(2)
    assert first.stddev_ns == pytest.approx(853_007 / 2**0.5, abs=1)
    assert first.avg_ts == pytest.approx((64e9 / 181_122_573 + 64e9 / 181_975_580) / 2)
    assert (first.model_size, first.model_n_params, first.repack, first.flash_attn) == (
        *(96_576_768, 134_515_008),
        *(True, -1),
    )


def test_the_written_deviation_is_not_believed() -> None:
    samples = [99_000_000_000, 100_000_000_000, 101_000_000_000]
    test = only(lines(row(n_prompt=1000, samples_ns=samples, avg_ns=1, stddev_ns=17_592_186_027_421)))
    assert test.stddev_ns == statistics.stdev(samples)
    assert test.avg_ns == 100_000_000_000


def test_without_samples_the_deviation_is_that_of_the_rates() -> None:
    # 1 % of the rate is 1 % of the time, whatever was written in nanoseconds
    test = only(lines(row(stddev_ns=17_592_186_027_421)))
    assert (test.avg_ns, test.stddev_ns, test.samples_ns) == (10**9, 10**7, ())


def test_a_deviation_of_zero_is_one_repetition_and_so_unknown() -> None:
    test = only(lines(row(stddev_ns=0, stddev_ts=0.0)))
    assert (test.stddev_ns, test.stddev_ts) == (None, None)


class TestOlderVersions:
    def test_a_missing_depth_is_an_empty_cache(self) -> None:
        assert only(lines(row())).n_depth == 0

    @pytest.mark.parametrize(
        ("columns", "mode"),
        [
            ({"use_mmap": True}, "mmap"),
            ({"use_mmap": 1}, "mmap"),
            ({"use_mmap": "0"}, "none"),
            ({"use_mmap": True, "use_direct_io": True}, "dio"),
            ({"use_mmap": True, "load_mode": "mlock"}, "mlock"),
            ({}, None),
        ],
    )
    def test_use_mmap_is_a_load_mode(self, columns: dict[str, Any], mode: str | None) -> None:
        assert only(lines(row(**columns))).load_mode == mode

    def test_backends_were_flags(self) -> None:
        assert only(lines(row(cuda=True, metal=False, rpc="1"))).backends == "CUDA,RPC"
        assert only(lines(row(cuda=False, blas=0))).backends == "CPU"

    def test_flags_and_numbers_of_any_writing(self) -> None:
        test = only(lines(row(flash_attn=True, repack="1", no_host=0, n_gpu_layers=-1, n_batch="2048")))
        assert (test.flash_attn, test.repack, test.no_host) == (1, True, False)
        assert (test.n_gpu_layers, test.n_batch) == (-1, 2048)

    def test_unknown_columns_are_passed_over(self) -> None:
        assert only(lines(row(mul_mat_q=True, f16_kv={"deep": [1]}))).name == "pp100"

    def test_older_tables(self) -> None:
        table = (
            "| model | size | params | backend | ngl | th | mmap | test   | t/s        |\n"
            "| ----- | ---: | -----: | ------- | --: | -: | ---: | ------ | ---------: |\n"
            "| llama 7B mostly Q4_0 | 3.56 GiB | 6.74 B | CUDA    | 99  |  8 |    0 | pp 512 | 2000 ± 20  |\n"
            "| llama 7B mostly Q4_0 | 3.56 GiB | 6.74 B | CUDA    | 99  |  8 |    0 | tg 128 | 132 ± 0.55 |\n"
            "\nbuild: 1e35d619a (1614)\n"
        )
        prompt, answer = parse_llama_bench(table).tests
        assert (prompt.name, answer.name) == ("pp512", "tg128")
        assert (prompt.n_gpu_layers, prompt.n_threads, prompt.load_mode) == (99, 8, "none")
        assert (prompt.build_commit, prompt.build_number) == ("1e35d619a", 1614)
        assert prompt.model_n_params == 6_740_000_000
        assert prompt.avg_ns == 256_000_000  # 512 / 2000 s


class TestSurroundings:
    banner = "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: GPU, {compute} [8.6]\n[load] warming\n"

    @pytest.mark.parametrize("form", ["json", "jsonl", "csv", "md", "sql"])
    def test_lines_before_the_output_are_passed_over(self, form: str) -> None:
        file = parse_llama_bench(self.banner + content(form))
        assert [test.name for test in file.tests] == NAMES
        assert file.notes == ()

    @pytest.mark.parametrize("form", FORMS)
    def test_windows_line_ends(self, form: str) -> None:
        assert len(parse_llama_bench(content(form).replace("\n", "\r\n")).tests) == len(NAMES)

    def test_a_list_on_one_line(self) -> None:
        assert len(parse_llama_bench(json.dumps([row(), row(n_prompt=7)])).tests) == 2

    def test_a_dump_of_the_database(self) -> None:
        head = content("sql").split("INSERT")[0]
        values = f"'c','1',{', '.join(['NULL'] * 32)},64,0,0,'t',5,0,9.5,0.5"
        dump = f"BEGIN;\n{head}INSERT INTO llama_bench VALUES({values});\n"
        test = only(dump)
        assert (test.name, test.avg_ns, test.avg_ts, test.cpu_info) == ("pp64", 5, 9.5, None)

    @pytest.mark.parametrize("quoted", ["it''s", "it's"])
    def test_quotes_in_sql_however_they_are_written(self, quoted: str) -> None:
        assert (
            only(
                content("sql").split("\nINSERT")[0]
                + "\nINSERT"
                + content("sql").split("\nINSERT")[1].replace("model.gguf", quoted)
            ).model_filename
            == "it's"
        )


class TestCutShort:
    def test_a_list_that_ends_inside_a_test(self) -> None:
        file = parse_llama_bench(content("json")[:-300])
        assert [test.name for test in file.tests] == NAMES[:-1]
        ((code, words),) = file.notes
        assert code == "cut-short"
        assert "5 whole tests" in words

    def test_a_list_without_its_end(self) -> None:
        file = parse_llama_bench(content("json").rstrip().removesuffix("]"))
        assert len(file.tests) == 6
        assert [code for code, _ in file.notes] == ["cut-short"]

    @pytest.mark.parametrize("form", ["jsonl", "csv", "sql"])
    def test_a_last_line_that_is_half(self, form: str) -> None:
        file = parse_llama_bench(content(form).rstrip()[:-60])
        assert [test.name for test in file.tests] == NAMES[:-1]
        assert [code for code, _ in file.notes] == ["cut-short"]

    @pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
    @pytest.mark.parametrize("form", FORMS)
    def test_any_cut_is_read_or_refused_in_one_line(self, form: str, share: float) -> None:
        text = content(form)
        try:
            found = parse_llama_bench(text[: int(len(text) * share)]).tests
        except UsageError as problem:
            words = str(problem)
        else:
            words = f"{len(found)} tests"
        assert words
        assert "\n" not in words

    def test_before_the_first_test(self) -> None:
        assert refusal(content("json")[:300]).reason == "no-tests"
        assert refusal(content("csv").splitlines()[0]).reason == "no-tests"

    def test_a_broken_object_between_whole_ones_is_named(self) -> None:
        text = lines(row()) + '{"avg_ts": 1, "n_prompt": \n' + lines(row(n_prompt=5))
        problem = refusal(text)
        assert problem.reason == "bad-row"
        assert "line 2" in str(problem)


class TestRejected:
    @pytest.mark.parametrize(
        "value", ["NaN", "nan", "-nan", "nan(ind)", "Infinity", "inf", "-inf", "-5", "0"]
    )
    @pytest.mark.parametrize("field", ["avg_ns", "avg_ts"])
    def test_durations_that_are_none(self, field: str, value: str) -> None:
        text = lines(row(), row(n_prompt=7)).replace("\n", "", 0)
        whole = {"avg_ns": '"avg_ns": 1000000000', "avg_ts": '"avg_ts": 100.0'}[field]
        first, second = text.splitlines()
        problem = refusal(f"{first}\n{second.replace(whole, f'{chr(34)}{field}{chr(34)}: {value}')}\n")
        assert problem.reason == "bad-duration"
        assert "row 2 (line 2), pp7" in str(problem)
        assert field in str(problem)

    @pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e400", "x"])
    @pytest.mark.parametrize("form", ["csv", "sql"])
    def test_in_tables_too(self, form: str, value: str) -> None:
        problem = refusal(
            content(form).replace("'185036667'", f"'{value}'").replace('"201586107"', f'"{value}"')
        )
        assert problem.reason == "bad-duration"
        assert "row 1" in str(problem)

    def test_a_sample_is_named_by_its_place(self) -> None:
        problem = refusal(lines(row(samples_ns=[10**9, -1, 10**9])))
        assert "samples_ns[1]" in str(problem)

    @pytest.mark.parametrize(
        "changes",
        [
            {"n_prompt": -1},
            {"n_prompt": 0},
            {"n_prompt": 1.5},
            {"n_prompt": "many"},
            {"n_prompt": 10**30},
            {"n_depth": -1},
            {"n_batch": "large"},
            {"repack": "perhaps"},
            {"samples_ns": 7},
            {"avg_ns": None, "avg_ts": None},
        ],
    )
    def test_values_of_the_wrong_kind(self, changes: dict[str, Any]) -> None:
        problem = refusal(lines(row(n_threads=1), row(**changes)))
        assert problem.reason == "bad-row"
        assert "row 2" in str(problem)

    @pytest.mark.parametrize("value", ["-nan", "nan"])
    def test_a_root_of_less_than_nothing_is_no_reason(self, value: str) -> None:
        text = lines(row(samples_ns=[10**9] * 3)) + lines(row(n_prompt=7))
        first, second = parse_llama_bench(text.replace('"stddev_ts": 1.0', f'"stddev_ts": {value}')).tests
        assert first.stddev_ts == 0.0
        assert second.stddev_ts is None

    def test_a_deviation_beyond_64_bits_is_not_looked_at(self) -> None:
        assert only(lines(row(stddev_ns=2**63))).stddev_ns == 10**7

    def test_a_negative_deviation(self) -> None:
        assert refusal(lines(row(stddev_ts=-1))).reason == "bad-duration"

    def test_a_time_beyond_all_measure(self) -> None:
        assert refusal(lines(row(avg_ns=1e300))).reason == "bad-duration"

    def test_a_csv_line_of_another_length(self) -> None:
        text = content("csv").splitlines()
        text[2] = '"only","three","values"'
        problem = refusal("\n".join(text))
        assert "row 2 (line 3)" in str(problem)

    def test_repeated_rows_count_once(self) -> None:
        file = parse_llama_bench(lines(row(), row(), row(n_prompt=7)))
        assert [test.name for test in file.tests] == ["pp100", "pp7"]
        assert [code for code, _ in file.notes] == ["repeated-rows"]


class TestKinds:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "empty-file"),
            (" \n", "empty-file"),
            ("hello", "unknown-file"),
            ("[]", "unknown-file"),
            ('{"verdict": 1}', "unknown-file"),
            ("[" * 100_000, "unknown-file"),
        ],
    )
    def test_what_is_none(self, text: str, reason: str) -> None:
        with pytest.raises(UsageError) as caught:
            kind_of(text)
        assert caught.value.reason == reason

    @pytest.mark.parametrize(
        ("form", "kind"), [("json", "export-json"), ("jsonl", "export-jsonl"), ("csv", "export-csv")]
    )
    def test_our_own_exports(self, form: str, kind: str) -> None:
        style = TerminalStyle(width=80, colour=False, unicode=True)
        assert kind_of(FORMATS[form].render(build_report(sample.run()), style)) == kind


@pytest.mark.parametrize("form", FORMS)
def test_what_we_write_can_be_read_again(form: str) -> None:
    style = TerminalStyle(width=80, colour=False, unicode=True)
    report = build_report(sample.run())
    again = parse_llama_bench(FORMATS[f"llama-bench-{form}"].render(report, style))
    assert report.tests is not None
    assert [test.name for test in again.tests] == [test.name for test in report.tests]
    for one, other in zip(again.tests, report.tests, strict=True):
        assert one.avg_ts == pytest.approx(other.avg_ts, rel=1e-3)
        assert (one.build_commit, one.model_type, one.n_threads) == (
            *(other.build_commit, other.model_type),
            other.n_threads,
        )
        assert one.samples_ns == (other.samples_ns if form in ("json", "jsonl") else ())


class TestComparable:
    def comparable(self, *rows: dict[str, Any]) -> Any:
        return of_llama_bench(parse_llama_bench(lines(*rows)), "bench.jsonl")

    def test_prompts_and_answers_are_cells(self) -> None:
        prompt, answer = self.comparable(
            row(samples_ns=[10**9, 2 * 10**9], gpu_info="", cpu_info="CPU X", flash_attn=1, n_gpu_layers=5),
            row(n_prompt=0, n_gen=10, n_depth=4, samples_ns=[10**9], flash_attn=-1),
        ).cells
        assert (prompt.phase, prompt.prompt_tokens, prompt.depth_tokens, prompt.output_tokens) == (
            "prefill",
            100,
            0,
            None,
        )
        assert prompt.samples_s == (1.0, 2.0)
        assert prompt.settings["flash_attn"] == "enabled"
        assert prompt.settings["n_gpu_layers_requested"] == "5"
        assert (answer.phase, answer.prompt_tokens, answer.depth_tokens, answer.output_tokens) == (
            "decode",
            None,
            4,
            10,
        )
        assert answer.samples_s == (0.1,)
        assert "flash_attn" not in answer.settings

    def test_without_samples_there_is_a_summary(self) -> None:
        (cell,) = self.comparable(row()).cells
        assert cell.samples_s == ()
        assert (cell.summary.median_s, cell.summary.stddev_s, cell.summary.n) == (1.0, 0.01, None)

    def test_both_phases_as_one_are_left_out_and_told(self) -> None:
        found = self.comparable(row(), row(n_gen=5))
        assert len(found.cells) == 1
        assert "left out" in found.notes[0]

    def test_machine_and_build(self) -> None:
        found = self.comparable(row(cpu_info="CPU X", gpu_info="", build_commit="0123456789abcdef"))
        assert found.machine == {"cpu": "CPU X", "gpus": "none"}
        assert found.engine == {"commit": "0123456"}
