"""llama-server's log: slots that launch, read, write and release, and their timings.

The prompt evaluated excludes what the slot had cached; the whole prompt is printed when it starts
(`task.n_tokens`, older `n_prompt_tokens`) or follows from the tokens in the slot at its release.
"""

from __future__ import annotations

import dataclasses
import re

from reports.logs.base import Gathering, Parser, Request, known
from reports.logs.timing_lines import MARKS, Block, read_timing

_SLOT = re.compile(r"\bslot\s+[^:]*:\s*id\s+(?P<slot>\d+)\s*\|\s*task\s+(?P<task>-?\d+)\s*\|\s*(?P<rest>.*)")
_WHOLE_PROMPT = re.compile(r"new prompt,.*?(?:task\.n_tokens|n_prompt_tokens)\s*=\s*(\d+)")
_SLOT_CTX = re.compile(r"n_ctx_slot\s*=\s*(\d+)")
_CACHED = re.compile(
    r"(?:cached n_tokens|n_past|n_tokens)\s*=\s*(\d+),\s*memory_seq_rm|n_past was set to (\d+)"
    r"|kv cache rm \[(\d+)"
)
_RELEASED = re.compile(r"stop processing: (?:n_tokens|n_past)\s*=\s*(\d+), truncated\s*=\s*(\d)")
_DRAFTED = re.compile(r"draft acceptance")
_FULL_AGAIN = "forcing full prompt re-processing"
_OPEN_LINES = 8
_MOST_OPEN = 256


@dataclasses.dataclass(slots=True)
class _Task:
    slot: str
    task: str
    block: Block
    whole: int | None = None
    cached: int | None = None
    n_ctx: int | None = None
    is_forced: bool = False
    is_drafted: bool = False
    line: int = 0


class LlamaServer(Parser):
    """See the module."""

    name = "llama-server log"
    marks = ("slot ", *MARKS)
    gives = ("n_prompt", "n_prompt_cached", "prefill_s", "n_output", "decode_s", "total_s")
    looks_for = "`slot print_timing: id 0 | task 0 | prompt eval time = ... ms / ... tokens`"
    obtain = "llama-server prints it on standard error after each request; with -lv 4 also what was cached"

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], _Task] = {}
        self._open: _Task | None = None
        self._opened = 0

    def line(self, text: str, number: int, found: Gathering) -> bool:
        match = _SLOT.search(text)
        if match is None:
            return self._bare(text, number)
        task = self._task(match["slot"], match["task"], found)
        task.line = number
        self._read(task, match["rest"], number, found)
        return True

    def close(self, found: Gathering) -> None:
        for task in list(self._tasks.values()):
            self._hand_over(task, None, found)

    def _task(self, slot: str, task: str, found: Gathering) -> _Task:
        """The task's own record. A slot has one task at a time: what it had before is done or cut off."""
        if (slot, task) not in self._tasks:
            for other in [t for t in self._tasks.values() if t.slot == slot]:
                self._hand_over(other, None, found)
            if len(self._tasks) >= _MOST_OPEN:
                self._hand_over(next(iter(self._tasks.values())), None, found)
            self._tasks[slot, task] = _Task(slot=slot, task=task, block=Block())
        return self._tasks[slot, task]

    def _bare(self, text: str, number: int) -> bool:
        """Builds of 2025 print the timings on lines of their own below the slot's line."""
        if self._open is None or number - self._opened > _OPEN_LINES:
            return False
        timing = read_timing(text)
        return timing is not None and self._open.block.takes(timing)

    def _read(self, task: _Task, rest: str, number: int, found: Gathering) -> None:
        timing = read_timing(rest)
        if timing is not None:
            task.block.takes(timing)
            self._open, self._opened = task, number
        elif not rest.strip():
            self._open, self._opened = task, number
        elif match := _RELEASED.search(rest):
            in_slot = int(match[1]) if match[2] == "0" else None
            self._hand_over(task, in_slot, found)
        else:
            _read_state(task, rest)

    def _hand_over(self, task: _Task, in_slot: int | None, found: Gathering) -> None:
        self._tasks.pop((task.slot, task.task), None)
        if self._open is task:
            self._open = None
        if not task.block.is_request:
            return
        facts, notes = task.block.facts(first_in_runs=True)
        evaluated, n_output = facts.get("n_prompt"), facts.get("n_output")
        whole = task.whole
        if whole is None and in_slot is not None and n_output:
            # The last token that was drawn is not put into the cache.
            whole = in_slot + 1 - n_output
        if whole is None and evaluated is not None and task.cached is not None:
            whole = evaluated + task.cached
        if whole is not None and evaluated is not None and whole >= evaluated:
            facts |= {"n_prompt": whole, "n_prompt_cached": whole - evaluated}
        if task.is_forced:
            notes.append("the server evaluated the whole prompt again: its cache could not be cut back")
        facts |= known({"n_ctx": task.n_ctx, "speculative": task.is_drafted or None, "start": "loaded"})
        found.add(
            Request(
                source=self.name,
                line=task.line,
                label=f"task {task.task}",
                facts=facts | {"engine": "llama.cpp"},
                expected=self.gives,
                notes=tuple(notes),
            )
        )


def _read_state(task: _Task, rest: str) -> None:
    if match := _WHOLE_PROMPT.search(rest):
        task.whole = int(match[1])
        context = _SLOT_CTX.search(rest)
        task.n_ctx = int(context[1]) if context else None
    elif (match := _CACHED.search(rest)) and task.cached is None:
        task.cached = int(next(group for group in match.groups() if group is not None))
    elif _FULL_AGAIN in rest:
        task.is_forced = True
    elif _DRAFTED.search(rest):
        task.is_drafted = True
