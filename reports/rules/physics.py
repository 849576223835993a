"""What hardware can and can not do: the figures behind the rules' thresholds, and sums made with them."""

from __future__ import annotations

from reports.evidence import Evidence

DEVICE_SHARE = 0.5
"""Share of a GPU's data-sheet bandwidth that decode is granted at least: healthy runs reach 0.61 to 0.87,
from small cards to large ones; below that lies driver, clock and data-sheet slack."""
LAYER_OVERHEAD_S = 300e-6
"""Upper end of what starting one layer's operations costs beside reading its weights: about 30 operations of
up to 10 us each (a kernel launch without graphs; with CUDA graphs it is a tenth of that)."""
USUAL_LAYERS = 40
"""For that overhead, where the number of layers is not known: that of a model of some 10 B parameters."""
LEAST_HOST_BYTES_S = 20e9
"""Bandwidth that system memory of a PC or server surely has: two channels of DDR3-1333, 2 x 10.7 GB/s."""
LEAST_BOARD_BYTES_S = 4e9
"""The same for a small board with one narrow channel (LPDDR4 of 32 bits)."""
GPU_RATIO = 20.0
"""Prefill over decode rate of a GPU that does the work: 20 to 60, since a prompt's tokens share each reading
of the weights. A CPU, or a GPU that waits for one, gives 0.5 to 4."""
HOST_RATIO = 4.0
RATIO_TOKENS = 64
"""Evaluated tokens from which on that ratio says something: it can not be above the number of tokens, and
short prompts are mostly fixed cost."""
DISK_BYTES_S = 8e9
"""More than an NVMe drive of the fourth generation reads; weights that arrive slower may come from disk."""


def device_step_s(evidence: Evidence) -> float | None:
    """Seconds that one decode step may take at most when all it reads lies in device memory: bytes over half
    of the bandwidth, and the cost of starting each layer's operations. None where bytes or bandwidth are
    unknown.

    Devices that each hold a part of the layers take turns, so one device's bandwidth counts.
    """
    read, bandwidth = evidence.read_bytes, evidence.gpu_bandwidth_bytes_s
    if read is None or not bandwidth:
        return None
    layers = evidence.n_layers or USUAL_LAYERS
    return read / (DEVICE_SHARE * bandwidth) + layers * LAYER_OVERHEAD_S


def whole_memory_step_s(evidence: Evidence) -> float | None:
    """Seconds to read all of the devices' memory once, at full bandwidth: no model that fits needs more
    reading for a token. None where size or bandwidth are unknown."""
    if not evidence.gpu_memory_bytes or not evidence.gpu_bandwidth_bytes_s:
        return None
    return evidence.gpu_memory_bytes / evidence.gpu_bandwidth_bytes_s


def host_rate_bytes_s(evidence: Evidence) -> float | None:
    """Weight bytes a second that decode draws from system memory; the device's own part is taken as free."""
    read, step = evidence.host_read_bytes, evidence.decode_step_s
    return None if read is None or step is None else read / step


def host_share(evidence: Evidence) -> float | None:
    """Share of the system memory's bandwidth that decode reaches, against its own figure or, where that is
    unknown, against what any PC has."""
    rate = host_rate_bytes_s(evidence)
    return None if rate is None else rate / (evidence.memory_bandwidth_bytes_s or LEAST_HOST_BYTES_S)


def ceiling_share(evidence: Evidence) -> float | None:
    """Share of the memory ceiling that decode reaches: of the measured one, else bytes read against the
    bandwidth of the memory that holds them. None where weights lie in two memories, or facts are missing."""
    step = evidence.decode_step_s
    if step is None:
        return None
    if evidence.decode_ceiling_s is not None:
        return evidence.decode_ceiling_s / step
    bandwidth = _bandwidth(evidence)
    return None if evidence.read_bytes is None or not bandwidth else evidence.read_bytes / step / bandwidth


def _bandwidth(evidence: Evidence) -> float | None:
    if evidence.host_works and not evidence.weights_on_gpu_bytes and not evidence.layers_on_gpu:
        return evidence.memory_bandwidth_bytes_s
    return None if evidence.host_works else evidence.gpu_bandwidth_bytes_s
