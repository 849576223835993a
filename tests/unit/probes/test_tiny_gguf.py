"""The generated models of the self-test, read back by readers of two hands."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from probes.gguf_header import read_model_facts
from probes.tiny_gguf import write_tiny_model


def test_twice_the_layers_are_twice_the_work(tmp_path: Path) -> None:
    one = read_model_facts(write_tiny_model(tmp_path / "one.gguf", 1))
    two = read_model_facts(write_tiny_model(tmp_path / "two.gguf", 2))
    four = read_model_facts(write_tiny_model(tmp_path / "four.gguf", 4))
    assert (one.architecture, one.kind, one.n_layers, one.quantization) == ("llama", "decoder", 1, "F16")
    # Of one layer: seven matrices of 64 * 64 weights of 2 bytes, two norms of 64 * 4 bytes.
    layer = 7 * 64 * 64 * 2 + 2 * 64 * 4
    assert two.bytes_per_token - one.bytes_per_token == layer
    assert four.bytes_per_token - two.bytes_per_token == 2 * layer


def test_another_reader_finds_every_tensor_in_its_place(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "one.gguf", 1)
    reader = gguf.GGUFReader(path)
    assert reader.fields["llama.block_count"].contents() == 1
    assert len(reader.fields["tokenizer.ggml.tokens"].contents()) == 258
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(tensors) == 12
    assert np.array_equal(tensors["blk.0.ffn_norm.weight"], np.ones(64))
    spread = float(np.std(tensors["blk.0.ffn_down.weight"].astype(np.float32)))
    assert abs(spread * 64**0.5 - 1) < 0.05
    assert path.read_bytes() == write_tiny_model(tmp_path / "again.gguf", 1).read_bytes()
