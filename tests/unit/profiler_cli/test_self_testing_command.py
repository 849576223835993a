"""What `llmphase doctor --self-test` says when its models can not be written."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from probes.errors import UnmeasurableError
from profiler_cli import self_testing


def test_a_full_disk_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(self_testing, "measure_rounds", full)
    with pytest.raises(UnmeasurableError, match=r"No space left on device; set TMPDIR") as caught:
        self_testing.check_self("terminal")
    assert caught.value.reason == "unwritable"
