"""llama-bench's table in Markdown: what it always shows, and settings that are not its defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reports.formats import TerminalStyle
from reports.formats.llama_bench import required_tests
from reports.llama_bench import KINDS, BenchTest
from reports.report import Report
from reports.text import markdown_safe
from reports.units import UNKNOWN

TITLES = {
    "n_gpu_layers": "ngl",
    "n_threads": "threads",
    "split_mode": "sm",
    "no_kv_offload": "nkvo",
    "flash_attn": "fa",
    "devices": "dev",
    "tensor_split": "ts",
    "tensor_buft_overrides": "ot",
    "load_mode": "lm",
    "embeddings": "embd",
    "no_op_offload": "nopo",
    "no_host": "noh",
    "repack": "rpk",
    "fit_target": "fitt",
    "fit_min_ctx": "fitc",
}
"""Field -> the head of its column, where they differ."""
DEFAULTS: dict[str, object] = {
    "n_cpu_moe": 0,
    "n_threads": None,
    "cpu_mask": "0x0",
    "cpu_strict": False,
    "poll": 50,
    "n_batch": 2048,
    "n_ubatch": 512,
    "type_k": "f16",
    "type_v": "f16",
    "main_gpu": 0,
    "split_mode": "layer",
    "no_kv_offload": False,
    "flash_attn": -1,
    "devices": "auto",
    "tensor_split": "0.00",
    "tensor_buft_overrides": "none",
    "load_mode": "auto",
    "lazy_mode": "auto",
    "embeddings": False,
    "no_op_offload": 0,
    "no_host": False,
    "repack": True,
    "fit_target": 0,
    "fit_min_ctx": 0,
}
"""Fields that have a column when they are worth one, in the table's order, and llama-bench's own values."""
_HOST_BACKENDS = ("CPU", "BLAS", "ZenDNN")

_Column = tuple[str, int, Callable[[BenchTest], str]]
"""Title, width (below zero: set left) and cell."""


def render(report: Report, style: TerminalStyle) -> str:
    """The table, then the build that it was made with."""
    del style
    tests = required_tests(report)
    columns = _columns(tests)
    lines = [
        _line([(title, width) for title, width, _ in columns]),
        "|" + "".join(f" {'-' * (abs(width) - 1)}{':' if width > 0 else '-'} |" for _, width, _ in columns),
    ]
    lines += [_line([(cell(test), width) for _, width, cell in columns]) for test in tests]
    builds = dict.fromkeys(f"{test.build_commit or UNKNOWN} ({test.build_number or 0})" for test in tests)
    footer = [f"build: {_safe(build)}" for build in builds]
    return "\n".join([*lines, *([""] if footer else []), *footer]) + "\n"


def _columns(tests: Sequence[BenchTest]) -> list[_Column]:
    is_host = all(any(name in (test.backends or "") for name in _HOST_BACKENDS) for test in tests)
    layers = {test.n_gpu_layers for test in tests}
    shown = [] if is_host and len(layers) < 2 else ["n_gpu_layers"]
    shown += [name for name in DEFAULTS if _is_worth_a_column(name, tests, is_host=is_host)]
    return [
        ("model", -30, lambda test: _safe(test.model_type or UNKNOWN)),
        ("size", 10, lambda test: _size(test.model_size)),
        ("params", 10, lambda test: _parameters(test.model_n_params)),
        ("backend", -10, lambda test: _safe(test.backends or UNKNOWN)),
        *(_setting(name) for name in shown),
        ("test", 15, lambda test: test.name),
        ("t/s", 20, _rate),
    ]


def _is_worth_a_column(name: str, tests: Sequence[BenchTest], *, is_host: bool) -> bool:
    if name == "n_threads":
        return is_host or len({test.n_threads for test in tests}) > 1
    return any(getattr(test, name) not in (None, DEFAULTS[name]) for test in tests)


def _setting(name: str) -> _Column:
    title = TITLES.get(name, name)
    width = max(len(title), 10 if KINDS[name] == "str" else 7)
    return title, -width if KINDS[name] == "str" else width, lambda test: _value(getattr(test, name))


def _value(value: object) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else _safe(str(value))


def _line(cells: Sequence[tuple[str, int]]) -> str:
    texts = (text.rjust(width) if width > 0 else text.ljust(-width) for text, width in cells)
    return f"| {' | '.join(texts)} |"


def _safe(text: str) -> str:
    # An underscore between letters is no markup, and quantizations are full of them.
    return markdown_safe(text).replace("\\_", "_")


def _size(n_bytes: int | None) -> str:
    if n_bytes is None:
        return UNKNOWN
    mebibytes = n_bytes / 2**20
    return f"{mebibytes:.2f} MiB" if n_bytes < 2**30 else f"{mebibytes / 1024:.2f} GiB"


def _parameters(number: int | None) -> str:
    if number is None:
        return UNKNOWN
    return f"{number / 1e6:.2f} M" if number < 10**9 else f"{number / 1e9:.2f} B"


def _rate(test: BenchTest) -> str:
    return f"{test.avg_ts:.2f}" + ("" if test.stddev_ts is None else f" ± {test.stddev_ts:.2f}")
