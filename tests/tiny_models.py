"""Tiny models with random weights that the engine really loads, and files that it must refuse.

Each writer takes the path to write and overrides for what it says about itself, and returns the
path. The same arguments give the same file. Widths are multiples of 256, so that every
quantization fits, and heads are 64 wide, so that every backend's attention kernels do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[Any]

N_EMBD = 256
N_HEAD = 4
N_HEAD_KV = 2
HEAD_SIZE = 64
N_FF = 512
N_LAYERS = 2
CONTEXT_LENGTH = 8192
WINDOW = 128
N_EXPERTS = 4
N_EXPERTS_USED = 2

BOS, EOS = "<|begin|>", "<|end|>"
MERGES = [
    *("t h", "th e", "i n", "a n", "e r", "o n", "r e", "o r", "e n", "a t", "e s", "i s", "a l", "i t"),
    *("Ġ t", "Ġ a", "Ġ s", "Ġ w", "Ġ o", "Ġ c", "Ġt h", "Ġth e", "Ġo f", "Ġa n", "Ġan d", "in g", "Ġt o"),
]
"""Byte-pair merges; both sides of each are bytes or the results of earlier merges."""


def _byte_alphabet() -> list[str]:
    """The printable stand-ins of byte-level BPE: 256 characters, one for each byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]


def vocabulary() -> list[str]:
    """All tokens: every byte, the merges, one token to begin and one to end."""
    return [*_byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES), BOS, EOS]


N_VOCAB = len(vocabulary())


class TinyModel:
    """Collects metadata and tensors and writes the file."""

    def __init__(self, architecture: str, *, seed: int = 0, file_type: int = 1) -> None:
        self.architecture = architecture
        self.metadata: dict[str, Any] = {
            "general.name": f"Tiny {architecture}",
            "general.file_type": file_type,
        }
        self.tensors: dict[str, Matrix] = {}
        self._random = np.random.default_rng(seed)

    def describe(self, **values: Any) -> None:
        """Add keys of the architecture; `__` stands for a dot."""
        for key, value in values.items():
            self.metadata[f"{self.architecture}.{key.replace('__', '.')}"] = value

    def matrix(self, name: str, *shape: int, dtype: type[np.floating[Any]] = np.float16) -> None:
        """Add random weights; the shape is in ggml's order, the row length first."""
        values = self._random.standard_normal(tuple(reversed(shape)), dtype=np.float32)
        self.tensors[name] = (values * (shape[0] ** -0.5)).astype(dtype)

    def ones(self, name: str, length: int) -> None:
        self.tensors[name] = np.ones(length, dtype=np.float32)

    def zeros(self, name: str, length: int) -> None:
        self.tensors[name] = np.zeros(length, dtype=np.float32)

    def tokenizer(self) -> None:
        tokens = vocabulary()
        control = int(gguf.TokenType.CONTROL)
        normal = int(gguf.TokenType.NORMAL)
        self.metadata |= {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [control if token in (BOS, EOS) else normal for token in tokens],
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": tokens.index(BOS),
            "tokenizer.ggml.eos_token_id": tokens.index(EOS),
            "tokenizer.ggml.add_bos_token": True,
        }

    def write(self, path: Path, overrides: Mapping[str, Any]) -> Path:
        """Write the file. An override of None leaves a key out."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in (self.metadata | dict(overrides)).items():
            if value is not None:
                _add(writer, key, value)
        for name, values in self.tensors.items():
            writer.add_tensor(name, values)
        _finish(writer)
        return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    adders[type(value)](key, value)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _blocks(model: TinyModel) -> Iterator[str]:
    """The names of the layers; each gets the norm before its mixer."""
    for layer in range(N_LAYERS):
        block = f"blk.{layer}"
        model.ones(f"{block}.attn_norm.weight", N_EMBD)
        yield block


def _attention(model: TinyModel, block: str, *, normed: bool = False) -> None:
    """`normed`: with norms of the queries' and the keys' own."""
    model.matrix(f"{block}.attn_q.weight", N_EMBD, N_HEAD * HEAD_SIZE)
    model.matrix(f"{block}.attn_k.weight", N_EMBD, N_HEAD_KV * HEAD_SIZE)
    model.matrix(f"{block}.attn_v.weight", N_EMBD, N_HEAD_KV * HEAD_SIZE)
    model.matrix(f"{block}.attn_output.weight", N_HEAD * HEAD_SIZE, N_EMBD)
    if normed:
        model.ones(f"{block}.attn_q_norm.weight", HEAD_SIZE)
        model.ones(f"{block}.attn_k_norm.weight", HEAD_SIZE)


def _feed_forward(model: TinyModel, block: str) -> None:
    model.ones(f"{block}.ffn_norm.weight", N_EMBD)
    model.matrix(f"{block}.ffn_gate.weight", N_EMBD, N_FF)
    model.matrix(f"{block}.ffn_up.weight", N_EMBD, N_FF)
    model.matrix(f"{block}.ffn_down.weight", N_FF, N_EMBD)


def _experts(model: TinyModel, block: str) -> None:
    model.ones(f"{block}.ffn_norm.weight", N_EMBD)
    model.matrix(f"{block}.ffn_gate_inp.weight", N_EMBD, N_EXPERTS, dtype=np.float32)
    model.matrix(f"{block}.ffn_gate_exps.weight", N_EMBD, N_FF, N_EXPERTS)
    model.matrix(f"{block}.ffn_up_exps.weight", N_EMBD, N_FF, N_EXPERTS)
    model.matrix(f"{block}.ffn_down_exps.weight", N_FF, N_EMBD, N_EXPERTS)


def _state_space(model: TinyModel, block: str) -> None:
    """A Mamba mixer; its decay must be negative for the state to stay bounded."""
    inner, state, kernel, rank = 2 * N_EMBD, 16, 4, 16
    model.matrix(f"{block}.ssm_in.weight", N_EMBD, 2 * inner)
    model.matrix(f"{block}.ssm_conv1d.weight", kernel, inner, dtype=np.float32)
    model.zeros(f"{block}.ssm_conv1d.bias", inner)
    model.matrix(f"{block}.ssm_x.weight", inner, rank + 2 * state)
    model.matrix(f"{block}.ssm_dt.weight", rank, inner, dtype=np.float32)
    model.zeros(f"{block}.ssm_dt.bias", inner)
    model.tensors[f"{block}.ssm_a"] = -np.tile(np.arange(1, state + 1, dtype=np.float32), (inner, 1))
    model.ones(f"{block}.ssm_d", inner)
    model.matrix(f"{block}.ssm_out.weight", inner, N_EMBD)
    model.describe(
        ssm__conv_kernel=kernel, ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=rank
    )


def _decoder(architecture: str, *, seed: int, tied: bool = False) -> TinyModel:
    """What all of them share: sizes, vocabulary, embedding, output."""
    model = TinyModel(architecture, seed=seed)
    model.tokenizer()
    model.describe(
        context_length=CONTEXT_LENGTH,
        embedding_length=N_EMBD,
        block_count=N_LAYERS,
        feed_forward_length=N_FF,
        attention__head_count=N_HEAD,
        attention__head_count_kv=N_HEAD_KV,
        attention__layer_norm_rms_epsilon=1e-5,
    )
    model.matrix("token_embd.weight", N_EMBD, N_VOCAB)
    model.ones("output_norm.weight", N_EMBD)
    if not tied:
        model.matrix("output.weight", N_EMBD, N_VOCAB)
    return model


def write_tiny_llama(path: Path, *, seed: int = 0, tied: bool = False, **overrides: Any) -> Path:
    """Dense, full attention."""
    model = _decoder("llama", seed=seed, tied=tied)
    for block in _blocks(model):
        _attention(model, block)
        _feed_forward(model, block)
    return model.write(path, overrides)


def write_tiny_moe(path: Path, *, seed: int = 0, **overrides: Any) -> Path:
    """Mixture of experts: qwen3moe with 4 experts, of which 2 are used."""
    model = _decoder("qwen3moe", seed=seed)
    model.describe(
        expert_count=N_EXPERTS,
        expert_used_count=N_EXPERTS_USED,
        expert_feed_forward_length=N_FF,
        attention__key_length=HEAD_SIZE,
        attention__value_length=HEAD_SIZE,
    )
    for block in _blocks(model):
        _attention(model, block, normed=True)
        _experts(model, block)
    return model.write(path, overrides)


def write_tiny_sliding_window(path: Path, *, seed: int = 0, **overrides: Any) -> Path:
    """gemma3, tied output: of its 2 layers the first attends to a window of 128 tokens."""
    model = _decoder("gemma3", seed=seed, tied=True)
    model.describe(
        attention__key_length=HEAD_SIZE,
        attention__value_length=HEAD_SIZE,
        attention__sliding_window=WINDOW,
        attention__sliding_window_pattern=2,
    )
    for block in _blocks(model):
        _attention(model, block, normed=True)
        model.ones(f"{block}.post_attention_norm.weight", N_EMBD)
        _feed_forward(model, block)
        model.ones(f"{block}.post_ffw_norm.weight", N_EMBD)
    return model.write(path, overrides)


def write_tiny_recurrent(path: Path, *, seed: int = 0, **overrides: Any) -> Path:
    """mamba: a state instead of a KV cache."""
    model = _decoder("mamba", seed=seed, tied=True)
    model.describe(feed_forward_length=0, attention__head_count=0, attention__head_count_kv=0)
    for block in _blocks(model):
        _state_space(model, block)
    return model.write(path, overrides)


def write_tiny_hybrid(path: Path, *, seed: int = 0, **overrides: Any) -> Path:
    """jamba: the first layer has a state, the second attends."""
    model = _decoder("jamba", seed=seed)
    model.describe(attention__head_count_kv=[0, N_HEAD_KV])
    for layer, block in enumerate(_blocks(model)):
        if layer == 0:
            _state_space(model, block)
            model.ones(f"{block}.ssm_dt_norm.weight", 16)
            model.ones(f"{block}.ssm_b_norm.weight", 16)
            model.ones(f"{block}.ssm_c_norm.weight", 16)
        else:
            _attention(model, block)
        _feed_forward(model, block)
    return model.write(path, overrides)


TINY_MODELS: dict[str, Callable[..., Path]] = {
    "llama": write_tiny_llama,
    "sliding-window": write_tiny_sliding_window,
    "moe": write_tiny_moe,
    "recurrent": write_tiny_recurrent,
    "hybrid": write_tiny_hybrid,
}
"""Those that the engine loads and decodes."""


def write_vocabulary_only(path: Path, **overrides: Any) -> Path:
    """A tokenizer without weights."""
    model = TinyModel("llama")
    model.tokenizer()
    return model.write(path, overrides)


def write_projector(path: Path, **overrides: Any) -> Path:
    """The image half of a multimodal model."""
    model = TinyModel("clip")
    model.metadata |= {"general.type": "mmproj", "clip.has_vision_encoder": True}
    model.matrix("mm.0.weight", N_EMBD, N_EMBD)
    return model.write(path, overrides)


def write_adapter(path: Path, **overrides: Any) -> Path:
    """A LoRA adapter."""
    model = TinyModel("llama")
    model.metadata |= {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 16.0}
    model.matrix("blk.0.attn_q.weight.lora_a", N_EMBD, 8)
    return model.write(path, overrides)


def write_importance_matrix(path: Path, **overrides: Any) -> Path:
    """What a quantizer uses; it has no architecture."""
    model = TinyModel("llama")
    model.metadata |= {"general.type": "imatrix", "imatrix.chunk_count": 1}
    model.matrix("blk.0.attn_q.weight.in_sum2", N_EMBD, 1, dtype=np.float32)
    return model.write(path, overrides)


def write_encoder(path: Path, *, architecture: str = "bert", **overrides: Any) -> Path:
    """The header of an embedding model, or of another architecture that generates no tokens."""
    model = TinyModel(architecture)
    model.describe(block_count=1, embedding_length=N_EMBD, context_length=512)
    model.matrix("token_embd.weight", N_EMBD, 8)
    return model.write(path, overrides)


def split_in_two(path: Path, names: Sequence[str] = ()) -> list[Path]:
    """Write a model's tensors into two parts beside `path`, as `llama-gguf-split` does."""
    reader = gguf.GGUFReader(path)
    stem = names[0] if names else path.stem
    half = len(reader.tensors) // 2
    parts = []
    for number, tensors in enumerate((reader.tensors[:half], reader.tensors[half:])):
        part = path.with_name(f"{stem}-{number + 1:05d}-of-00002.gguf")
        writer = gguf.GGUFWriter(part, "llama")
        for key, field in reader.fields.items() if number == 0 else ():
            if not key.startswith("GGUF.") and key != "general.architecture":
                sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(key, field.contents(), field.types[0], sub_type)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in tensors:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        _finish(writer)
        parts.append(part)
    return parts
