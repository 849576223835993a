"""What devices and links can do at most."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelRate:
    """One matrix product run with the engine's own kernels on one device."""

    rows: int
    """Rows of the weight matrix (n_out)."""
    columns: int
    """Columns of the weight matrix (n_in)."""
    batch: int
    """Columns of the other factor: 1 is matrix-vector (decode), more is matrix-matrix (prefill)."""
    weight_type: str
    """ggml type name of the weights."""
    seconds: float
    """Median for one product."""
    weight_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCeiling:
    """What one device can do at most, measured with the engine's own kernels."""

    device: str
    threads: int | None
    """Of a CPU device; None elsewhere."""
    memory_bytes_s: float | None
    """Weight bytes per second of large matrix-vector products."""
    compute_flops_s: float | None
    """2 * rows * columns * batch per second of large matrix-matrix products."""
    operation_s: float | None
    """Cost of one graph operation that moves next to nothing."""
    transfer_bytes_s: float | None
    """Host to device; None for the host itself."""
    rates: tuple[KernelRate, ...]
    """The products behind the figures, large and of the model's own shapes."""
    unknown: dict[str, str]
    """Field name -> why it is not known."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """The way to one RPC server, measured through the engine's own protocol before the first load."""

    server: str
    """`host:port`, as asked for."""
    round_trip_s: float | None
    """Median of many small requests, each answered before the next."""
    to_bytes_s: float | None
    """Bytes per second into the server's memory, the round trip taken off."""
    from_bytes_s: float | None
    """Bytes per second back."""
    unknown: dict[str, str]
    """Field name -> why it is not known; `server` where nothing could be measured."""
