"""Engine settings as options, shared by the commands that measure."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.models import OptionInfo

from profiler_cli import options
from profiler_cli.shared_options import shares

if TYPE_CHECKING:
    from probes.plan import Asked

_LIST, _STEPS_HELP = "LIST", "numbers, all, auto, 0-all*5 (5 steps)"
_ENGINE, _PLACEMENT = "Engine settings", "Placement on devices"


def _option(*names: str, metavar: str, help: str, panel: str = _ENGINE) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel=panel)


def _flag(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=_ENGINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """As given on the command line, not yet read. Each field is an option.

    Lists are axes: every combination becomes a load of its own. Inside one value of a list, `/` separates
    what itself is a list, as in llama.cpp's own benchmark.
    """

    threads: Annotated[
        str | None,
        _option("--threads", "-t", metavar=_LIST, help="Threads for decode. Default: usable cores."),
    ] = None
    threads_batch: Annotated[
        str | None,
        _option("--threads-batch", "-tb", metavar=_LIST, help="Threads for prefill. Default: as --threads."),
    ] = None
    batch: Annotated[
        str | None,
        _option("--batch", "-b", "--batch-size", metavar=_LIST, help="Tokens in a batch. Default: 2048."),
    ] = None
    ubatch: Annotated[
        str | None,
        _option(
            "--ubatch", "-ub", "--ubatch-size", metavar=_LIST, help="Tokens in a micro-batch. Default: 512."
        ),
    ] = None
    flash_attn: Annotated[
        str | None,
        _option("--flash-attn", "-fa", metavar=_LIST, help="on, off or auto. Default: auto."),
    ] = None
    type_k: Annotated[
        str | None,
        _option(
            "--type-k", "-ctk", "--cache-type-k", metavar=_LIST, help="Type of the K cache. Default: f16."
        ),
    ] = None
    type_v: Annotated[
        str | None,
        _option(
            "--type-v", "-ctv", "--cache-type-v", metavar=_LIST, help="Type of the V cache. Default: f16."
        ),
    ] = None
    ctx: Annotated[
        int | None,
        _option("--ctx", "-c", "--ctx-size", metavar="N", help="Context size. Default: what is needed."),
    ] = None
    load_mode: Annotated[
        str | None,
        _option("--load-mode", metavar=_LIST, help=f"{', '.join(options.LOAD_MODES)}. Default: auto."),
    ] = None
    repack: Annotated[
        bool | None,
        _flag(
            "--repack/--no-repack",
            help="Let the engine lay weights out anew for this CPU. Default: repack.",
        ),
    ] = None
    cell_timeout: Annotated[
        str | None,
        _option(
            "--cell-timeout",
            metavar="TIME",
            help="Give up a cell when the engine is silent for so long. Default: 10 times what its longest "
            "call should take, at least 2m; for a load at least 5m.",
        ),
    ] = None
    force: Annotated[bool, _flag("--force", help="Measure what will likely not fit into memory, too.")] = (
        False
    )
    gpu_layers: Annotated[
        str | None,
        _option(
            "--gpu-layers",
            "-ngl",
            "--n-gpu-layers",
            panel=_PLACEMENT,
            metavar=_LIST,
            help=f"Layers on devices: {_STEPS_HELP}. Default: auto.",
        ),
    ] = None
    rpc: Annotated[
        str | None,
        _option(
            "--rpc",
            panel=_PLACEMENT,
            metavar="HOST:PORT,...",
            help="Add devices of machines that run `llmphase rpc-server`.",
        ),
    ] = None
    device: Annotated[
        str | None,
        _option(
            "--device",
            "-dev",
            panel=_PLACEMENT,
            metavar=_LIST,
            help="Devices to use, such as CUDA0/CUDA1 or none. `llmphase devices` lists them.",
        ),
    ] = None
    split_mode: Annotated[
        str | None,
        _option(
            "--split-mode",
            "-sm",
            panel=_PLACEMENT,
            metavar=_LIST,
            help="How devices share a model: none, layer, row, tensor. Default: layer.",
        ),
    ] = None
    tensor_split: Annotated[
        str | None,
        _option(
            "--tensor-split",
            "-ts",
            panel=_PLACEMENT,
            metavar=_LIST,
            help="Share of each device, such as 3/1. Default: by free memory.",
        ),
    ] = None
    main_gpu: Annotated[
        str | None,
        _option(
            "--main-gpu",
            "-mg",
            panel=_PLACEMENT,
            metavar=_LIST,
            help="The device that holds everything with --split-mode none. Default: 0.",
        ),
    ] = None
    kv_offload: Annotated[
        str | None,
        _option(
            "--kv-offload",
            panel=_PLACEMENT,
            metavar=_LIST,
            help="on: the KV cache lies beside its layers; off: on the host. Default: on.",
        ),
    ] = None
    op_offload: Annotated[
        str | None,
        _option(
            "--op-offload",
            panel=_PLACEMENT,
            metavar=_LIST,
            help="on: large batches of host layers are multiplied on the device. Default: on.",
        ),
    ] = None
    n_cpu_moe: Annotated[
        str | None,
        _option(
            "--n-cpu-moe",
            "-ncmoe",
            panel=_PLACEMENT,
            metavar=_LIST,
            help="Keep the experts of the first N layers on the host. Default: 0.",
        ),
    ] = None
    override_tensor: Annotated[
        str | None,
        _option(
            "--override-tensor",
            "-ot",
            panel=_PLACEMENT,
            metavar=_LIST,
            help="PATTERN=BUFFER: put tensors whose names match there; / joins several.",
        ),
    ] = None

    def read(self, budget: str | None) -> Asked:
        """What was given, checked one by one. Raises UsageError naming the option."""
        from probes.plan import Asked

        return Asked(
            threads=_numbers(self.threads, "--threads"),
            threads_batch=_numbers(self.threads_batch, "--threads-batch"),
            n_batch=_numbers(self.batch, "--batch"),
            n_ubatch=_numbers(self.ubatch, "--ubatch"),
            n_ctx=self.ctx,
            flash_attn=options.choices(self.flash_attn, "--flash-attn", options.FLASH_CHOICES),
            type_k=options.choices(self.type_k, "--type-k", options.CACHE_TYPES),
            type_v=options.choices(self.type_v, "--type-v", options.CACHE_TYPES),
            load_mode=options.choices(self.load_mode, "--load-mode", options.LOAD_MODES),
            repack=None if self.repack is None else (self.repack,),
            n_gpu_layers=options.optional(options.parse_gpu_layers, self.gpu_layers),
            rpc_servers=options.optional(options.parse_servers, self.rpc),
            devices=options.optional(options.parse_devices, self.device),
            split_mode=options.choices(self.split_mode, "--split-mode", options.SPLIT_MODES),
            tensor_split=options.optional(options.parse_splits, self.tensor_split),
            main_gpu=_numbers(self.main_gpu, "--main-gpu"),
            kv_offload=options.switches(self.kv_offload, "--kv-offload"),
            op_offload=options.switches(self.op_offload, "--op-offload"),
            n_cpu_moe=_numbers(self.n_cpu_moe, "--n-cpu-moe"),
            override_tensor=options.optional(options.parse_overrides, self.override_tensor),
            budget_ns=options.optional(options.parse_duration_ns, budget),
            cell_timeout_ns=options.optional(options.parse_cell_timeout_ns, self.cell_timeout),
        )


def _single(option: OptionInfo) -> OptionInfo:
    if option.metavar != _LIST:
        return option
    shown = copy.copy(option)
    shown.metavar = "VALUE"
    shown.help = (option.help or "").replace(_STEPS_HELP, "a number, all or auto")
    return shown


with_engine_axes = shares("engine", EngineOptions)
"""For a command with a parameter `engine` that measures every combination."""
with_engine_options = shares("engine", EngineOptions, _single)
"""For one that takes a single value of each."""


def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    return None if text is None else options.parse_lengths(text, option)
