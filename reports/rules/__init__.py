"""The rules, in the order in which they are asked. A new rule is one new file and one line here."""

from __future__ import annotations

from reports.rules import (
    cache_on_host,
    clocks,
    depth_cost,
    device_rate,
    device_unused,
    does_not_fit,
    experts,
    first_touch,
    gpu_neighbours,
    impossible,
    load_share,
    memory_ceiling,
    neighbours,
    page_faults,
    paging,
    phase_ratio,
    placement,
    quota,
    sampling,
    shares,
    slow_device,
    spill,
    spread,
    threads,
    unaccounted,
)
from reports.rules.base import Abstained, Cleared, Finding, Outcome, Rule, Stage, Verdict

__all__ = ["RULES", "Abstained", "Cleared", "Finding", "Outcome", "Rule", "Stage", "Verdict"]


RULES: tuple[Rule, ...] = (
    Rule(
        code="impossible-rate",
        stage="times",
        question="Is a rate above what the hardware can do?",
        judge=impossible.judge,
    ),
    Rule(
        code="page-faults",
        stage="contention",
        question="Was the model read from disk or swap while computing?",
        judge=page_faults.judge,
    ),
    Rule(
        code="memory-too-small",
        stage="contention",
        question="Do the weights fit in the memory that must hold them?",
        judge=paging.judge,
    ),
    Rule(code="cpu-quota", stage="contention", question="Does a CPU quota stop the run?", judge=quota.judge),
    Rule(
        code="threads-over-cores",
        stage="contention",
        question="Are there more threads than usable cores?",
        judge=threads.judge,
    ),
    Rule(
        code="neighbours",
        stage="contention",
        question="Do other processes take CPU that it needs?",
        judge=neighbours.judge,
    ),
    Rule(
        code="gpu-neighbours",
        stage="contention",
        question="Does other work keep the GPU busy?",
        judge=gpu_neighbours.judge,
    ),
    Rule(code="clock-low", stage="contention", question="Is a clock held down?", judge=clocks.judge),
    Rule(
        code="gpu-unused",
        stage="residency",
        question="Is there a GPU with nothing on it?",
        judge=device_unused.judge,
    ),
    Rule(
        code="layers-on-host",
        stage="residency",
        question="Are layers in system memory though a device is there?",
        judge=placement.judge,
    ),
    Rule(
        code="device-slower-than-host",
        stage="residency",
        question="Would the host be faster than the device?",
        judge=slow_device.judge,
    ),
    Rule(
        code="experts-on-host",
        stage="residency",
        question="Are experts in system memory?",
        judge=experts.judge,
    ),
    Rule(
        code="does-not-fit",
        stage="residency",
        question="Do the weights fit in device memory?",
        judge=does_not_fit.judge,
    ),
    Rule(
        code="spilled",
        stage="residency",
        question="Has device memory spilled into system memory?",
        judge=spill.judge,
    ),
    Rule(
        code="attention-on-host",
        stage="residency",
        question="Does attention run on the CPU?",
        judge=cache_on_host.judge,
    ),
    Rule(
        code="depth-cost",
        stage="residency",
        question="Does a token's cost grow steeply with depth?",
        judge=depth_cost.judge,
    ),
    Rule(
        code="device-too-slow",
        stage="residency",
        question="Is decode slower than device memory explains?",
        judge=device_rate.judge,
    ),
    Rule(
        code="phase-ratio",
        stage="residency",
        question="Is a prompt token hardly cheaper than a generated one?",
        judge=phase_ratio.judge,
    ),
    Rule(code="load-share", stage="load", question="Is most of the wait loading?", judge=load_share.judge),
    Rule(
        code="first-touch",
        stage="load",
        question="Does the first evaluation pay for the load?",
        judge=first_touch.judge,
    ),
    Rule(
        code="sampling-share",
        stage="beside",
        question="Does choosing tokens take as long as computing them?",
        judge=sampling.judge,
    ),
    Rule(
        code="unaccounted",
        stage="beside",
        question="Is most of the wait outside the phases?",
        judge=unaccounted.judge,
    ),
    Rule(
        code="spread-out",
        stage="beside",
        question="Do several devices hold what one could?",
        judge=spread.judge,
    ),
    Rule(
        code="phase-share", stage="shares", question="Which phase takes most of the wait?", judge=shares.judge
    ),
    Rule(
        code="memory-ceiling",
        stage="ceiling",
        question="Is decode at the memory ceiling?",
        judge=memory_ceiling.judge,
    ),
)
"""Asked in this order; the codes are stable."""
