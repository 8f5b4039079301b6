# SPDX-License-Identifier: Apache-2.0
"""Tests of the broker that pass through relays unchanged.

These files have the limits, rights, alarms and audit of connections, and clients that are slow or
publish faster than they may. `HEADRACE_RELAYS=1 pytest tests/broker` runs all others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN_S = 280.0
ROOT = Path(__file__).parents[3]
FILES = (
    "gateway/test_backpressure.py",
    "gateway/test_frame_sizes.py",
    "gateway/test_held_answers.py",
    "gateway/test_qpid_clients.py",
    "gateway/test_quotas.py",
    "gateway/test_rights.py",
    "gateway_0_x/test_channel_class.py",
    "gateway_0_10/test_0_10_session.py",
    "server/test_alarms.py",
    "server/test_audit.py",
    "server/test_frozen_connections.py",
)


@pytest.mark.timeout(300)
def test_tests_of_the_broker_pass_through_relays() -> None:
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--reruns", "0"),
            *(f"tests/broker/{file}" for file in FILES),
        ],
        cwd=ROOT,
        env={**environment, "HEADRACE_RELAYS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    assert "with 1 relay for each broker" in done.stdout
