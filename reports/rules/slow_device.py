"""Layers on a device that is slower than the host: a weak GPU, or one behind a slow network."""

from __future__ import annotations

from reports.evidence import Evidence
from reports.rules import network
from reports.rules.base import Abstained, Cleared, Finding, Outcome
from reports.rules.placement import WORTH
from reports.units import duration, percent


def judge(evidence: Evidence) -> Outcome:
    """The step as it is against the one predicted from the rates of the host alone."""
    inputs = evidence.known(
        "layers_on_gpu",
        "layers_total",
        "decode_tok_s",
        "no_layers_step_s",
        "no_layers_prefill_s",
        "remote_devices",
        "network_step_s",
    )
    if evidence.layers_on_gpu == 0 or (evidence.has_gpu is False and not evidence.remote_devices):
        return Cleared(reason="no layer is on a device", inputs=inputs)
    saved = evidence.no_layers_save
    if saved is None or evidence.decode_step_s is None or evidence.no_layers_step_s is None:
        return Abstained(missing=evidence.missing("no_layers_step_s", "decode_tok_s"))
    steps = (
        f"a token takes {duration(evidence.decode_step_s)}, on the host alone about"
        f" {duration(evidence.no_layers_step_s)}"
    )
    if saved < WORTH:
        return Cleared(reason=steps, inputs=inputs)
    where = "on another machine" if evidence.has_gpu is False else "on the device"
    cause, way_out = "", ""
    if network.weighs(evidence):
        cause, way_out = f", and {network.cost_clause(evidence)}", ", or reach it over a faster network"
    return Finding(
        verdict="offload-bound",
        confidence=0.8,
        reason=f"the layers {where} take longer there than here: {steps}{cause}; taking them off would save"
        f" {percent(saved)} of the wait",
        inputs=inputs,
        saves_share=saved,
        margin=saved / WORTH - 1,
        advice=f"keep layers off it: --gpu-layers 0{way_out}",
    )
