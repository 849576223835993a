"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# How fast examples are drawn depends on what else the machine does, which is no property of the program.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

if "PYTEST_XDIST_WORKER" in os.environ:
    # Threads of an engine that wait for one another spin, on cores that the other tests' engines wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
