"""What a diagnosis is asked about: the options of `llmphase diagnose`, read into a workload and gates."""

from __future__ import annotations

import dataclasses
from typing import Literal

from probes.errors import UsageError
from probes.inquiries import prepare_prompt
from probes.plan import MAX_TOKENS
from probes.prompt_source import read_prompt
from probes.records import ModelFacts, Workload
from profiler_cli.options import parse_duration_ns

DEFAULT_OUTPUT_TOKENS = 256
VERDICTS = (
    "offload-bound",
    "prompt-bound",
    "generation-bound",
    "load-bound",
    "contended",
    "balanced",
    "unknown",
)
_MAX_TURNS = 10_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The workload as it was described, before any token is counted."""

    prompt: str | None
    """A file, or `-`."""
    prompt_tokens: int | None
    system: str | None
    chat: bool
    output_tokens: int
    is_output_default: bool
    """Nobody asked for this length of answer."""
    cached_tokens: int
    cached_text: str | None
    """A file whose text the runtime has in its cache."""
    turns: int
    start: Literal["cold", "warm", "loaded"]

    @classmethod
    def read(
        cls,
        *,
        prompt: str | None,
        prompt_tokens: int | None,
        system: str | None,
        chat: bool,
        output_tokens: int | None,
        cached_prefix: str | None,
        turns: int,
        cold: bool,
        warm: bool,
    ) -> Question:
        """Check what belongs together. Raises UsageError naming the option."""
        if (prompt is None) == (prompt_tokens is None):
            raise UsageError(
                "give the prompt: --prompt FILE, --prompt - for standard input, or --prompt-tokens N",
                reason="prompt",
            )
        if prompt is None and (system is not None or chat):
            raise UsageError(
                "--system and --chat go with --prompt, not with --prompt-tokens", reason="prompt"
            )
        if cold and warm:
            raise UsageError("--cold and --warm exclude each other", reason="start")
        counted = cached_prefix is not None and cached_prefix.isascii() and cached_prefix.isdigit()
        if cached_prefix is not None and not counted and prompt is None:
            raise UsageError(
                "--cached-prefix FILE goes with --prompt: give a number of tokens", reason="prompt"
            )
        return cls(
            prompt=prompt,
            prompt_tokens=_within("--prompt-tokens", prompt_tokens, 1, MAX_TOKENS),
            system=system,
            chat=chat,
            output_tokens=_within("--output-tokens", output_tokens, 1, MAX_TOKENS) or DEFAULT_OUTPUT_TOKENS,
            is_output_default=output_tokens is None,
            cached_tokens=int(cached_prefix) if cached_prefix is not None and counted else 0,
            cached_text=None if counted else cached_prefix,
            turns=_within("--turns", turns, 1, _MAX_TURNS) or 1,
            start="cold" if cold else "warm" if warm else "loaded",
        )

    @property
    def defaulted(self) -> tuple[str, ...]:
        """Names of workload fields that took a default."""
        return ("output_tokens",) if self.is_output_default else ()

    def workload(self, model: ModelFacts) -> tuple[Workload, str | None]:
        """Count the tokens with the model's vocabulary; the workload, and the prompt as the model gets it.

        Raises LlmphaseError.
        """
        if self.prompt is None:
            assert self.prompt_tokens is not None
            return self._of(self.prompt_tokens, self.cached_tokens, "tokens"), None
        prepared = prepare_prompt(
            model.path,
            read_prompt(self.prompt),
            system=None if self.system is None else read_prompt(self.system, "--system"),
            chat=self.chat,
            prefix=None if self.cached_text is None else read_prompt(self.cached_text, "--cached-prefix"),
        )
        source = "standard input" if self.prompt == "-" else self.prompt
        cached = self.cached_tokens or prepared.cached_tokens
        return self._of(prepared.tokens, cached, source), prepared.text

    def counted_workload(self) -> Workload:
        """The workload of a saved run, for which only counts of tokens are known. Raises UsageError."""
        if self.prompt_tokens is None:
            raise UsageError(
                "--run goes with --prompt-tokens N: the model is not read again", reason="prompt"
            )
        return self._of(self.prompt_tokens, self.cached_tokens, "tokens")

    def _of(self, prompt_tokens: int, cached_tokens: int, source: str) -> Workload:
        if cached_tokens >= prompt_tokens:
            raise UsageError(
                f"--cached-prefix {cached_tokens:,}: the prompt has {prompt_tokens:,} tokens, and its last"
                " one is always evaluated",
                reason="prompt",
            )
        return Workload(
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            output_tokens=self.output_tokens,
            start=self.start,
            turns=self.turns,
            source=source,
        )


def _within(option: str, value: int | None, low: int, high: int) -> int | None:
    if value is not None and not low <= value <= high:
        raise UsageError(f"{option}: {value} is not between {low} and {high:,}", reason="range")
    return value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Limits that make the exit code 1; None: no limit."""

    fail_on: tuple[str, ...]
    max_ttft_s: float | None
    max_wait_s: float | None
    min_decode_tok_s: float | None

    @classmethod
    def read(
        cls,
        *,
        fail_on: str | None,
        max_ttft: str | None,
        max_wait: str | None,
        min_decode: float | None,
    ) -> Gates:
        """Raises UsageError naming the option."""
        verdicts = tuple(word.strip() for word in fail_on.split(",")) if fail_on is not None else ()
        for verdict in verdicts:
            if verdict not in VERDICTS:
                raise UsageError(f"--fail-on: {verdict!r} is none of {', '.join(VERDICTS)}", reason="choice")
        if min_decode is not None and not min_decode > 0:
            raise UsageError("--min-decode: give a rate above 0, in tokens per second", reason="range")
        return cls(
            fail_on=verdicts,
            max_ttft_s=None if max_ttft is None else parse_duration_ns(max_ttft, "--max-ttft") / 1e9,
            max_wait_s=None if max_wait is None else parse_duration_ns(max_wait, "--max-wait") / 1e9,
            min_decode_tok_s=min_decode,
        )

    def broken(
        self, verdict: str, ttft_s: float | None, wait_s: float | None, decode_tok_s: float | None
    ) -> list[str]:
        """What is not met, each as a clause with both numbers. What is not known can not be met."""
        problems = [f"the verdict is {verdict}"] if verdict in self.fail_on else []
        problems += _over("time to first token", ttft_s, self.max_ttft_s)
        problems += _over("the wait", wait_s, self.max_wait_s)
        if self.min_decode_tok_s is not None and (
            decode_tok_s is None or decode_tok_s < self.min_decode_tok_s
        ):
            shown = "unknown" if decode_tok_s is None else f"{decode_tok_s:.3g} tok/s"
            problems.append(f"decode is {shown}, wanted at least {self.min_decode_tok_s:g} tok/s")
        return problems


def _over(what: str, value_s: float | None, limit_s: float | None) -> list[str]:
    if limit_s is None or (value_s is not None and value_s <= limit_s):
        return []
    shown = "unknown" if value_s is None else f"{value_s:.3g} s"
    return [f"{what} is {shown}, wanted at most {limit_s:g} s"]
