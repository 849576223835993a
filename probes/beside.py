"""What stands beside the phases: tokenizing, sampling, and one whole request with every part timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from probes.clock import Clock
from probes.engine import Engine
from probes.records import RequestSample, SamplingSample, TokenizeSample
from probes.walk import time_steps

_DRAWS = 8
"""Draws from each sampler chain, for each repetition: one takes microseconds."""
_SETTLE_S = 0.01
"""After another one's turn, until the threads that it left spinning have gone to sleep."""


class Beside:
    """Times them on a loaded engine.

    `tokens` are those laid ready, and are laid ready again afterwards; `prompt` is the user's own text
    where there is one, `n_batch` the tokens that a runtime evaluates at a time.
    """

    def __init__(
        self, engine: Engine, clock: Clock, tokens: Sequence[int], prompt: bytes | None, n_batch: int
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._tokens = tokens
        self._prompt = prompt
        self._n_batch = n_batch

    def tokenize(self, length: int) -> TokenizeSample:
        """Tokenize a text of about so many tokens."""
        text = self._engine.text_of(self._tokens[:length])
        before_ns = self._clock.now_ns()
        tokens = self._engine.tokenize(text)
        took_ns = self._clock.now_ns() - before_ns
        return TokenizeSample(
            prompt_tokens=length, evaluated_tokens=len(tokens), text_bytes=len(text), duration_ns=took_ns
        )

    def sample(self, repetitions: int) -> list[SamplingSample]:
        """Each draw from fresh logits: the engine sorts and cuts them anew for each token. The first draw
        of a chain is not kept, it makes the chain."""
        engine, now_ns = self._engine, self._clock.now_ns
        samples: list[SamplingSample] = []
        engine.clear()
        engine.run(engine.batch(0, 1, logits=True))
        for chain in ("default", "greedy"):
            engine.sample(chain)
            for _ in range(_DRAWS * repetitions):
                before_ns = now_ns()
                engine.sample(chain)
                took_ns = now_ns() - before_ns
                samples.append(
                    SamplingSample(chain="default" if chain == "default" else "greedy", duration_ns=took_ns)
                )
        return samples

    def request(
        self, prompt_tokens: int, cached_tokens: int, output_tokens: int, turn_ns: int | None = None
    ) -> Iterator[RequestSample | None]:
        """One request as a runtime serves it: text in, sampled tokens out, batches of n_batch. What is cached
        is evaluated before the clock starts.

        After each `turn_ns`, if given, comes None: others may have their turn, which is no part of its time.
        The sample comes last.
        """
        engine, now_ns = self._engine, self._clock.now_ns
        text = self._prompt or engine.text_of(self._tokens[:prompt_tokens])
        special = self._prompt is not None
        engine.clear()
        if cached_tokens:
            engine.set_tokens(engine.tokenize(text, special=special))
            self._prefill_in_batches(0, cached_tokens)
        begin_ns = now_ns()
        tokens = engine.tokenize(text, special=special)
        tokenized_ns = now_ns()
        engine.set_tokens(tokens + [0] * output_tokens)
        prefill_ns = self._prefill_in_batches(cached_tokens, len(tokens))
        before_ns = now_ns()
        token = engine.sample("default")
        first_ns = now_ns()
        sampling_ns = first_ns - before_ns
        decode_ns = pauses_ns = 0
        turn_began_ns = begin_ns
        for position in range(len(tokens), len(tokens) + output_tokens - 1):
            if turn_ns is not None and now_ns() - turn_began_ns >= turn_ns:
                before_ns = now_ns()
                yield None
                time.sleep(_SETTLE_S)
                turn_began_ns = now_ns()
                pauses_ns += turn_began_ns - before_ns
            engine.put_token(position, token)
            batch = engine.batch(position, 1, logits=True)
            before_ns = now_ns()
            engine.run(batch)
            between_ns = now_ns()
            token = engine.sample("default")
            after_ns = now_ns()
            decode_ns += between_ns - before_ns
            sampling_ns += after_ns - between_ns
        end_ns = now_ns()
        engine.set_tokens(self._tokens)
        yield RequestSample(
            prompt_tokens=len(tokens),
            output_tokens=output_tokens,
            tokenize_ns=tokenized_ns - begin_ns,
            prefill_ns=prefill_ns,
            decode_ns=decode_ns,
            sampling_ns=sampling_ns,
            ttft_ns=first_ns - begin_ns,
            wall_ns=end_ns - begin_ns - pauses_ns,
            cached_tokens=cached_tokens,
        )

    def _prefill_in_batches(self, begin: int, end: int) -> int:
        total_ns = 0
        for start in range(begin, end, self._n_batch):
            size = min(self._n_batch, end - start)
            batch = self._engine.batch(start, size, logits=start + size == end)
            total_ns += time_steps(self._engine.run, self._clock.now_ns, [batch])[0]
        return total_ns
