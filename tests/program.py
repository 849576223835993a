"""The real command, and how a test makes it run on the scripted engine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
PROGRAM = Path(sys.executable).with_name("llmphase")

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def scripted(script: dict[str, Any] | None, engine: str = "scripted") -> dict[str, str]:
    """Environment variables that choose the scripted engine; none for the real one."""
    if script is None:
        return {}
    return {"LLMPHASE_ENGINE": f"fakes:{engine}", "LLMPHASE_SCRIPT": json.dumps(script)}


def free_address() -> str:
    """An address of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
