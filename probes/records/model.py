"""What the header of a model file says, and the matrices that it means for a token."""

from __future__ import annotations

import dataclasses
from typing import Literal

ModelKind = Literal[
    "decoder", "encoder", "encoder-decoder", "diffusion", "vocabulary", "projector", "adapter"
]
AttentionKind = Literal["full", "sliding-window", "recurrent", "hybrid"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file that a variant was made from."""

    path: str
    quantization: str
    """Its label."""
    is_quantized: bool
    """It holds quantized weights itself: speed is that of the variant's type, quality is not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the header of a model file says, and the matrices that it means for a token."""

    path: str
    """The file that is opened: for a split model its first part."""
    files: tuple[str, ...]
    """All parts, in order."""
    name: str
    """`general.name`, else the file's stem. Untrusted text."""
    architecture: str
    """`general.architecture`, for example `llama`."""
    kind: ModelKind
    attention: AttentionKind
    quantization: str
    """Label such as `Q4_K - Medium`, from `general.file_type`, else the commonest tensor type."""
    file_bytes: int
    """Size of all parts on disk."""
    model_bytes: int
    """Size of all tensors: what is loaded."""
    n_params: int
    """Number of weights."""
    n_layers: int | None
    """Repeating blocks; the engine counts one more for the output layer."""
    n_ctx_train: int | None
    """Context length the model was trained for, in tokens."""
    n_vocab: int | None
    n_embd: int | None
    n_experts: int | None
    n_experts_used: int | None
    sliding_window_tokens: int | None
    tied_output: bool
    """True when the output layer reuses the token embedding."""
    bytes_per_token: int
    """Weight bytes read to generate one token: of the embedding table one row, of experts the share used."""
    kv_elements_per_token: int | None
    """Elements of K and V together that one token adds to the cache, over all layers with a cache."""
    bytes_by_type: dict[str, int]
    """Tensor bytes by ggml type name."""
    has_chat_template: bool
    modified_at: float
    """Modification time of the first part, seconds since the epoch."""
    n_heads: int | None = None
    """Query heads of the first layer."""
    layer_bytes: tuple[int, ...] = ()
    """Tensor bytes of each repeating layer; empty: not known."""
    layer_expert_bytes: tuple[int, ...] = ()
    """Of these, the bytes of experts."""
    layer_kv_elements: tuple[int, ...] = ()
    """Elements of K and V that one token adds, by layer; empty: not known or none."""
    layer_windowed: tuple[bool, ...] = ()
    """Whether each layer attends to `sliding_window_tokens` alone; empty: not known, or no window."""
    output_bytes: int = 0
    """What the output layer takes to a device: its matrix and norm; a tied embedding is copied there."""
    made_from: Origin | None = None
    """Of a variant that was made for comparison; None: the file is the user's own."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MatrixShape:
    """Weight matrices of one shape and format."""

    rows: int
    """Outputs of the product."""
    columns: int
    """Inputs of the product."""
    weight_type: str
    """ggml type name."""
    per_token: int
    """Products with such a matrix that one token takes; of experts only those that it is sent to."""
    in_model: int
    """Such matrices in the model, all experts among them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WeightMatrices:
    """The matrices that a token is multiplied by, of a model in one quantization."""

    quantization: str | None
    """What a file would be made as, `Q4_K_M`; None: the model as it is."""
    shapes: tuple[MatrixShape, ...]
    """Those that move the most bytes for a token first."""
