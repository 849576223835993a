"""Writes small models with random weights whose work is known: one layer more is one layer's work more.

A dense `llama` in 16-bit floats with a vocabulary of single bytes, in the GGUF format (version 3) as the
specification in ggml's docs/gguf.md lays it out. Standard library and numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

N_EMBD = 64
"""So narrow that even 32 layers (2 MB) stay in the caches nearest to a core, or close: where one model fitted
and one of twice its layers did not, memory's speed would be in their ratio."""
N_HEAD, N_HEAD_KV, HEAD_SIZE = 1, 1, 64
N_FF = 64
CONTEXT_LENGTH = 4096
_ALIGNMENT = 32
_VERSION = 3
_F32, _F16 = 0, 1
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_FORMATS = {_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<?"}
_NORMAL, _CONTROL = 1, 3
_BEGIN, _END = "<|begin|>", "<|end|>"
"""Types of tokens (`llama_token_type`), and the two that are no bytes."""

_Shape = tuple[int, ...]


def write_tiny_model(path: Path, layers: int) -> Path:
    """Write a model of so many layers. The same number gives the same file. Raises OSError."""
    tensors = dict(_tensors(layers))
    header = [b"GGUF", struct.pack("<IQQ", _VERSION, len(tensors), len(_metadata(layers)))]
    header += [_string(key) + _typed(kind, value) for key, (kind, value) in _metadata(layers).items()]
    offset = 0
    for name, shape in tensors.items():
        place = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _type(shape), offset)
        header.append(_string(name) + place)
        offset += _padded(_size(shape))
    with path.open("wb") as file:
        file.write(_pad(b"".join(header)))
        for data in _weights(tensors):
            file.write(_pad(data))
    return path


def _metadata(layers: int) -> Mapping[str, tuple[int, Any]]:
    tokens = [*_byte_alphabet(), _BEGIN, _END]
    return {
        "general.architecture": (_STRING, "llama"),
        "general.name": (_STRING, f"Self-test, {layers} layers"),
        "general.file_type": (_UINT32, 1),
        "llama.context_length": (_UINT32, CONTEXT_LENGTH),
        "llama.embedding_length": (_UINT32, N_EMBD),
        "llama.block_count": (_UINT32, layers),
        "llama.feed_forward_length": (_UINT32, N_FF),
        "llama.attention.head_count": (_UINT32, N_HEAD),
        "llama.attention.head_count_kv": (_UINT32, N_HEAD_KV),
        "llama.attention.layer_norm_rms_epsilon": (_FLOAT32, 1e-5),
        "tokenizer.ggml.model": (_STRING, "gpt2"),
        "tokenizer.ggml.pre": (_STRING, "gpt-2"),
        "tokenizer.ggml.tokens": (_ARRAY, (_STRING, tokens)),
        "tokenizer.ggml.token_type": (
            _ARRAY,
            (_INT32, [_CONTROL if token in (_BEGIN, _END) else _NORMAL for token in tokens]),
        ),
        "tokenizer.ggml.merges": (_ARRAY, (_STRING, ["t h"])),
        "tokenizer.ggml.bos_token_id": (_UINT32, tokens.index(_BEGIN)),
        "tokenizer.ggml.eos_token_id": (_UINT32, tokens.index(_END)),
        "tokenizer.ggml.add_bos_token": (_BOOL, True),
    }


def _byte_alphabet() -> list[str]:
    """The printable stand-ins of byte-level BPE: a character for each byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(byte) for byte in printable] + [chr(256 + index) for index in range(256 - len(printable))]


def _tensors(layers: int) -> Iterator[tuple[str, _Shape]]:
    """Names and shapes, the row length first as ggml has it."""
    n_vocab = len(_byte_alphabet()) + len((_BEGIN, _END))
    yield "token_embd.weight", (N_EMBD, n_vocab)
    yield "output_norm.weight", (N_EMBD,)
    yield "output.weight", (N_EMBD, n_vocab)
    for layer in range(layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", (N_EMBD,)
        yield f"{block}.attn_q.weight", (N_EMBD, N_HEAD * HEAD_SIZE)
        yield f"{block}.attn_k.weight", (N_EMBD, N_HEAD_KV * HEAD_SIZE)
        yield f"{block}.attn_v.weight", (N_EMBD, N_HEAD_KV * HEAD_SIZE)
        yield f"{block}.attn_output.weight", (N_HEAD * HEAD_SIZE, N_EMBD)
        yield f"{block}.ffn_norm.weight", (N_EMBD,)
        yield f"{block}.ffn_gate.weight", (N_EMBD, N_FF)
        yield f"{block}.ffn_up.weight", (N_EMBD, N_FF)
        yield f"{block}.ffn_down.weight", (N_FF, N_EMBD)


def _weights(tensors: Mapping[str, _Shape]) -> Iterator[bytes]:
    """Ones for norms; for matrices of one shape the same random one, whose products keep their size."""
    import numpy as np

    random = np.random.default_rng(0)
    made: dict[_Shape, bytes] = {}
    for shape in tensors.values():
        if shape not in made and len(shape) == 1:
            made[shape] = np.ones(shape, dtype="<f4").tobytes()
        elif shape not in made:
            values = random.standard_normal(shape[::-1], dtype=np.float32) * shape[0] ** -0.5
            made[shape] = values.astype("<f2").tobytes()
        yield made[shape]


def _type(shape: _Shape) -> int:
    return _F32 if len(shape) == 1 else _F16


def _size(shape: _Shape) -> int:
    return shape[0] * 4 if len(shape) == 1 else shape[0] * shape[1] * 2


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def _pad(data: bytes) -> bytes:
    return data.ljust(_padded(len(data)), b"\0")


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _typed(kind: int, value: Any) -> bytes:
    return struct.pack("<I", kind) + _value(kind, value)


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _string(value)
    if kind == _ARRAY:
        item_kind, items = value
        return struct.pack("<IQ", item_kind, len(items)) + b"".join(_value(item_kind, item) for item in items)
    return struct.pack(_FORMATS[kind], value)
