"""What the header of a model file says: the facts that placement, ceilings and predictions rest on."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from probes import architectures as arch
from probes.errors import ModelFileError
from probes.ggml_types import FILE_TYPES
from probes.gguf_reader import Header, TensorInfo, read_header
from probes.kv_cache import MAX_LAYERS, kv_elements_by_layer
from probes.records import AttentionKind, ModelFacts, ModelKind
from probes.split_files import first_part, part_name
from probes.text import clean_text, show_name, show_path
from probes.windowed_layers import sliding_window, windowed_layers

_BLOCK = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"_(?:ch)?exps\.(?:weight|bias|scale)$")
_ROW_READ = frozenset({"token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight"})
"""Tables from which one token reads one row."""
_OUTPUT = "output.weight"
_EMBEDDING = "token_embd.weight"
_NAMED_MISSING_PARTS = 3


def read_model_facts(path: Path) -> ModelFacts:
    """Read the facts of a model from its file, of all parts of a split one.

    For a later part of a split model the first part is read. No tensor data is read.
    Raises ModelFileError when it is no whole GGUF, UnmeasurableError when it can not be read.
    """
    _require_first_part(path)
    first = read_header(first_part(path))
    headers = [first, *_later_parts(first)]
    return _facts(first, headers, [tensor for header in headers for tensor in header.tensors])


def require_decoder(facts: ModelFacts) -> None:
    """Raise ModelFileError unless the model generates text token by token and can be measured."""
    if facts.kind == "decoder":
        return
    what, advice = _REFUSALS[facts.kind]
    raise ModelFileError(
        f"{show_path(facts.path)} is {what} (architecture {facts.architecture}): {advice}.",
        reason=f"{facts.kind}-model",
    )


_REFUSALS: dict[ModelKind, tuple[str, str]] = {
    "encoder": ("an embedding model", "it generates no tokens; name a text-generating model"),
    "encoder-decoder": (
        "an encoder-decoder model",
        "its prompt is no prefill of the decoder; name a decoder-only model",
    ),
    "diffusion": (
        "a diffusion model",
        "it has no decode phase to time; name a model that writes token by token",
    ),
    "vocabulary": ("a vocabulary without weights", "name the model file itself"),
    "projector": ("a multimodal projector", "name the language model that it belongs to"),
    "adapter": ("an adapter or draft head", "name the base model that it belongs to"),
}


# Split models.


def _require_first_part(path: Path) -> None:
    part, first = part_name(path), first_part(path)
    if part is not None and first != path and not first.exists():
        raise ModelFileError(
            f"{show_path(path)} is part {part.number} of {part.count} of a split model, and its first part "
            f"{show_name(first)} is missing: put all parts into one folder.",
            reason="missing-part",
        )


def _later_parts(first: Header) -> list[Header]:
    count = first.integer("split.count") or 1
    if count <= 1:
        return []
    part = part_name(first.path)
    if part is None or part.count != count or first.integer("split.no") not in (0, None):
        raise ModelFileError(
            f"{show_path(first.path)} is one of {count:,} parts of a split model under another name: give "
            f"the parts their names back (NAME-00001-of-{count:05d}.gguf) and name the first.",
            reason="renamed-part",
        )
    missing = [show_name(path) for path in part.parts() if not path.exists()]
    if missing:
        more = len(missing) - _NAMED_MISSING_PARTS
        names = ", ".join(missing[:_NAMED_MISSING_PARTS]) + (f" and {more} more" if more > 0 else "")
        raise ModelFileError(
            f"{show_path(first.path)} is a split model of {count} parts, and {names} "
            f"{'is' if len(missing) == 1 else 'are'} missing: download what is missing into its folder.",
            reason="missing-part",
        )
    return [read_header(path) for path in part.parts()[1:]]


# Facts.


def _facts(first: Header, headers: list[Header], tensors: list[TensorInfo]) -> ModelFacts:
    architecture = _architecture(first)
    kind = _kind(first, architecture, tensors)
    n_layers = first.integer(f"{architecture}.block_count")
    embedding = next((tensor for tensor in tensors if tensor.name == _EMBEDDING), None)
    tied = embedding is not None and all(tensor.name != _OUTPUT for tensor in tensors)
    window = sliding_window(first, architecture)
    n_experts = first.integer(f"{architecture}.expert_count") or None
    n_experts_used = _experts_used(first, architecture) if n_experts else None
    bytes_by_type = _bytes_by_type(tensors)
    kv_elements = kv_elements_by_layer(first, architecture, tensors)
    return ModelFacts(
        path=os.fspath(first.path),
        files=tuple(os.fspath(header.path) for header in headers),
        name=clean_text(first.text("general.name") or "") or clean_text(first.path.stem),
        architecture=clean_text(architecture, 64),
        kind=kind,
        attention=_attention(architecture, window),
        quantization=_quantization(first, bytes_by_type),
        file_bytes=sum(header.file_bytes for header in headers),
        model_bytes=sum(tensor.n_bytes for tensor in tensors),
        n_params=sum(tensor.n_elements for tensor in tensors),
        n_layers=n_layers,
        n_ctx_train=first.integer(f"{architecture}.context_length"),
        n_vocab=_n_vocab(first, architecture, embedding),
        n_embd=first.integer(f"{architecture}.embedding_length"),
        n_experts=n_experts,
        n_experts_used=n_experts_used,
        sliding_window_tokens=window,
        tied_output=tied,
        bytes_per_token=_bytes_per_token(
            _trunk(first, architecture, tensors),
            tied=tied,
            n_experts=n_experts,
            n_experts_used=n_experts_used,
        ),
        kv_elements_per_token=None if kv_elements is None else sum(kv_elements),
        bytes_by_type=bytes_by_type,
        has_chat_template="tokenizer.chat_template" in first.metadata,
        modified_at=first.modified_at,
        n_heads=(first.integers(f"{architecture}.attention.head_count", 1) or (None,))[0],
        layer_bytes=layer_bytes(tensors, n_layers),
        layer_expert_bytes=layer_expert_bytes(tensors, n_layers),
        layer_kv_elements=kv_elements or (),
        layer_windowed=_layer_windowed(first, architecture, n_layers, window),
        output_bytes=output_bytes(tensors, tied=tied),
    )


def _architecture(header: Header) -> str:
    """The architecture as the file writes it: it is the prefix of the model's own keys."""
    if header.text("general.type") == "imatrix" or "imatrix.datasets" in header.array_lengths:
        raise ModelFileError(
            f"{show_path(header.path)} is an importance matrix for quantizing, no model: name a model file.",
            reason="imatrix-file",
        )
    architecture = header.text("general.architecture")
    if not architecture:
        raise ModelFileError(
            f"{show_path(header.path)} does not say its architecture: it is no model that can be loaded.",
            reason="no-architecture",
        )
    return architecture


def _kind(header: Header, architecture: str, tensors: list[TensorInfo]) -> ModelKind:
    declared = header.text("general.type")
    kinds: tuple[tuple[ModelKind, bool], ...] = (
        ("projector", declared == "mmproj" or architecture in arch.PROJECTORS),
        ("adapter", declared == "adapter" or "adapter.type" in header.metadata),
        ("adapter", architecture in arch.COMPANIONS),
        ("vocabulary", declared == "vocab" or not tensors),
        ("diffusion", architecture in arch.DIFFUSION),
        ("encoder", architecture in arch.ENCODERS),
        ("encoder-decoder", architecture in arch.ENCODER_DECODERS),
    )
    return next((kind for kind, applies in kinds if applies), "decoder")


def _attention(architecture: str, window: int | None) -> AttentionKind:
    if architecture in arch.RECURRENT:
        return "recurrent"
    if architecture in arch.HYBRID:
        return "hybrid"
    return "full" if window is None else "sliding-window"


def _layer_windowed(
    header: Header, architecture: str, n_layers: int | None, window: int | None
) -> tuple[bool, ...]:
    """Empty without a window, where nothing tells, and where the layers' number is not to be believed."""
    if window is None or n_layers is None or n_layers > MAX_LAYERS:
        return ()
    return windowed_layers(header, architecture, n_layers) or ()


def _quantization(header: Header, bytes_by_type: dict[str, int]) -> str:
    file_type = header.integer("general.file_type")
    if file_type in FILE_TYPES:
        return FILE_TYPES[file_type]
    return next(iter(bytes_by_type), "unknown")


def _n_vocab(header: Header, architecture: str, embedding: TensorInfo | None) -> int | None:
    tokens = header.array_lengths.get("tokenizer.ggml.tokens")
    if tokens:
        return tokens
    declared = header.integer(f"{architecture}.vocab_size")
    if declared is not None or embedding is None:
        return declared
    return embedding.n_elements // embedding.shape[0] if embedding.shape[0] else None


def _bytes_by_type(tensors: Iterable[TensorInfo]) -> dict[str, int]:
    """Bytes by type name, the commonest first."""
    totals: Counter[str] = Counter()
    for tensor in tensors:
        totals[tensor.type.name] += tensor.n_bytes
    return dict(totals.most_common())


def layer_bytes(tensors: Iterable[TensorInfo], n_layers: int | None) -> tuple[int, ...]:
    """Tensor bytes of each repeating layer; empty where their number is not to be believed."""
    if n_layers is None or n_layers > MAX_LAYERS:
        return ()
    totals = [0] * n_layers
    for tensor in tensors:
        if 0 <= _block(tensor.name) < n_layers:
            totals[_block(tensor.name)] += tensor.n_bytes
    return tuple(totals)


def layer_expert_bytes(tensors: Iterable[TensorInfo], n_layers: int | None) -> tuple[int, ...]:
    """As `layer_bytes`, of experts alone."""
    return layer_bytes((tensor for tensor in tensors if _EXPERTS.search(tensor.name)), n_layers)


def output_bytes(tensors: Iterable[TensorInfo], *, tied: bool) -> int:
    """What the output layer takes with it to a device: its matrix and norm; a tied table is copied there."""
    return sum(
        tensor.n_bytes
        for tensor in tensors
        if tensor.name.startswith("output") or (tied and tensor.name == _EMBEDDING)
    )


# Bytes read for each generated token.


def _experts_used(header: Header, architecture: str) -> int | None:
    """Experts that each token is sent to: the largest number, where it differs by layer."""
    value = header.metadata.get(f"{architecture}.expert_used_count")
    values = value if isinstance(value, tuple) else (value,)
    return max((item for item in values if isinstance(item, int) and item > 0), default=None)


def _trunk(header: Header, architecture: str, tensors: list[TensorInfo]) -> list[TensorInfo]:
    """Leave out the appended layers that guess several tokens ahead: ordinary decoding skips them."""
    n_ahead = header.integer(f"{architecture}.nextn_predict_layers") or 0
    n_layers = header.integer(f"{architecture}.block_count")
    if not n_ahead or n_layers is None:
        return tensors
    return [tensor for tensor in tensors if _block(tensor.name) < n_layers - n_ahead]


def _block(name: str) -> int:
    match = _BLOCK.match(name)
    return int(match[1]) if match else -1


def _bytes_per_token(
    tensors: Iterable[TensorInfo], *, tied: bool, n_experts: int | None, n_experts_used: int | None
) -> int:
    """All weights once, of embedding tables one row, of experts the share that a token is sent to.

    A tied embedding table is the output layer too, so it is read whole.
    """
    total = 0
    for tensor in tensors:
        if tensor.name in _ROW_READ and not (tied and tensor.name == _EMBEDDING):
            total += _row_bytes(tensor)
        elif _EXPERTS.search(tensor.name) and n_experts and n_experts_used:
            total += tensor.n_bytes * min(n_experts_used, n_experts) // n_experts
        else:
            total += tensor.n_bytes
    return total


def _row_bytes(tensor: TensorInfo) -> int:
    return dataclasses.replace(tensor, shape=tensor.shape[:1]).n_bytes
