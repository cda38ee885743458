"""The last lines of exceptions that a scenario can ask for, as real logs hold them.

Those of the bridge and its libraries are the same under every release; the allocator's
has its place in the release's own texts.
"""

from __future__ import annotations

from hpuwatch.sim.talk.voice import Voice
from hpuwatch.units import MIB

_BRIDGE = {
    "graph-compile": (
        "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."
    ),
    "node-create": (
        "RuntimeError: synNodeCreateWithId failed for node: batch_gemm with synStatus 26"
        " [Generic failure]. ."
    ),
    "device-acquire": (
        "RuntimeError: synStatus=26 [Generic failure] Device acquire failed."
    ),
    "device-busy": (
        "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."
    ),
    "hccl": (
        "RuntimeError: hcl_device_control_factory.cpp::71(initDevice): The condition"
        " [ false ] failed. Invalid server type (4[OCP1]) requested to generate"
        " controller."
    ),
    "lazy-inputs": (
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_LAZY Error,"
        " ValidateSyncInputTensors tensor_data is empty. Tensorid:3375"
        " QueueStatus:ThreadPool m_tasks size: 0 irValue:id_8791_hpu__input Uniqueid:"
        " 3375"
    ),
    "world-size": (
        "RuntimeError: torch.distributed is already initialized but the torch world size"
        " does not match parallel_config.world_size (1 vs. 8)."
    ),
}
_OOM = "device-oom"
ERRORS = (_OOM, *_BRIDGE)
"""The names that a scenario may use."""

_WHERE = {
    "import": "init_device",
    "engine": "init_device",
    "load": "load_model",
    "profile": "determine_available_memory",
    "kv": "initialize_cache",
    "multimodal": "warmup_multimodal_graphs",
    "prompt": "warmup_graphs",
    "decode": "warmup_graphs",
}


def text_of(error: str, voice: Voice, wanted_bytes: int) -> str:
    """Return the exception's last line; only ``device-oom`` names the bytes."""
    if error == _OOM:
        megabytes = wanted_bytes // MIB
        return voice.error("device_oom", rank=0, size=wanted_bytes, megabytes=megabytes)
    return _BRIDGE[error]


def where_of(phase: str) -> str:
    """Return the function that the traceback ends in at this phase of the server."""
    return _WHERE.get(phase, "execute_model")
