"""What a group's worker is told to do, and what its answer to a load says: plan and record to messages."""

from __future__ import annotations

from probes.messages import Load, Loaded, RunBeside
from probes.page_cache import classify
from probes.plan import PlannedGroup
from probes.records import LoadSample, Options, Settings
from probes.requests import Request


def load_command(group: PlannedGroup, settings: Settings, options: Options, *, warm_up: bool) -> Load:
    """To load the group's model, with room for its longest length and its request."""
    return Load(
        model=group.model,
        settings=settings,
        tokens=options.tokens,
        seed=options.seed,
        max_tokens=_most_tokens(group, options),
        warm_up=warm_up,
        prompt=group.prompt,
    )


def _most_tokens(group: PlannedGroup, options: Options) -> int:
    walk = max(options.prompt_tokens) + options.output_tokens
    asked = group.workload
    return walk if asked is None else max(walk, asked.prompt_tokens + asked.output_tokens)


def load_sample(loaded: Loaded, cached_fraction: float | None) -> LoadSample:
    """A load's record; `cached_fraction` is what of the file was in the page cache before."""
    return LoadSample(
        cache_state=classify(cached_fraction),
        cached_fraction=cached_fraction,
        open_ns=loaded.open_ns,
        tensors_ns=loaded.tensors_ns,
        context_ns=loaded.context_ns,
        first_touch_ns=loaded.first_touch_ns,
        disk_read_bytes=loaded.disk_read_bytes,
        started_ns=loaded.started_ns,
    )


def beside_command(
    lengths: tuple[int, ...], repetitions: int, request: Request | None, turn_ns: int | None
) -> RunBeside:
    """To time what stands beside the phases, and perhaps a whole request, a turn at a time."""
    return RunBeside(
        lengths=lengths,
        repetitions=repetitions,
        request_prompt_tokens=None if request is None else request.prompt_tokens,
        request_output_tokens=0 if request is None else request.output_tokens,
        request_cached_tokens=0 if request is None else request.cached_tokens,
        turn_ns=turn_ns,
    )
