"""llama-batched-bench: one object or table row for each prompt, answer and number of parallel sequences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reports.logs.base import Gathering, Parser, Request, known
from reports.logs.numbers import count, number

_KEYS = ("pp", "tg", "pl", "n_kv", "t_pp", "speed_pp", "t_tg", "speed_tg", "t", "speed")
_HEAD = re.compile(r"\|\s*PP \|\s*TG \|\s*B \|")


class BatchedBench(Parser):
    """See the module."""

    name = "llama-batched-bench"
    has_tables = True
    marks = ("PP |",)
    gives = ("n_prompt", "prefill_s", "n_output", "decode_s")
    looks_for = '`{"pp": 128, "tg": 16, "pl": 1, "t_pp": ..., "t_tg": ...}`, or its table `| PP | TG | B |`'
    obtain = "llama-batched-bench ... --output-format jsonl"

    def line(self, text: str, number: int, found: Gathering) -> bool:
        if _HEAD.search(text):
            self.in_table = True
            return True
        if not self.in_table:
            return False
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if len(cells) != len(_KEYS):
            self.in_table = False
            return False
        row = dict(zip(_KEYS, cells, strict=True))
        if row["pp"].isdecimal():
            self._row({key: _cell(key, text) for key, text in row.items()}, number, found)
        return True

    def document(self, value: Mapping[str, Any], number: int, found: Gathering) -> bool:
        if not {"pp", "tg", "pl", "t_pp", "t_tg"} <= value.keys():
            return False
        self._row(value, number, found)
        return True

    def _row(self, row: Mapping[str, Any], line: int, found: Gathering) -> None:
        """Sequences side by side share each step: one of them gets its own prompt's part of the time, and a
        token with each step."""
        prompt, output, parallel = (_count(row[key]) for key in ("pp", "tg", "pl"))
        t_pp, t_tg = row["t_pp"], row["t_tg"]
        is_timed = all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in (t_pp, t_tg)
        )
        if not is_timed or not parallel:
            return
        settings = {
            "n_ctx": _count(row.get("n_kv_max")),
            "n_batch": _count(row.get("n_batch")),
            "n_ubatch": _count(row.get("n_ubatch")),
            "threads": _count(row.get("n_threads")),
            "flash_attn": {0: False, 1: True}.get(row.get("flash_attn", -1)),
        }
        facts = {
            "n_prompt": prompt,
            "prefill_s": t_pp if prompt else None,
            "n_output": output,
            "decode_s": t_tg if output else None,
            "decode_tok_s": output / t_tg if output and t_tg > 0 else None,
            "prefill_tok_s": prompt * (1 if row.get("is_pp_shared") else parallel) / t_pp
            if prompt and t_pp > 0 and parallel == 1
            else None,
        }
        side = f", {parallel} side by side" if parallel > 1 else ""
        found.add(
            Request(
                source=self.name,
                line=line,
                label=f"{prompt} in, {output} out{side}",
                facts=known(settings | facts) | {"engine": "llama.cpp", "start": "loaded"},
                expected=self.gives,
                is_series=False,
                notes=(f"{parallel} sequences ran side by side and shared each step",)
                if parallel > 1
                else (),
            )
        )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _cell(key: str, text: str) -> float | int | None:
    return count(text) if key in ("pp", "tg", "pl", "n_kv") else number(text)
