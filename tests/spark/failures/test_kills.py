# SPDX-License-Identifier: Apache-2.0
"""Everything that a pipeline is made of is killed, and each message passes once all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing.spark_soak import SparkSoak

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_each_message_passes_once_whatever_is_killed(tmp_path: Path) -> None:
    soak = SparkSoak(tmp_path, seed=5)
    count = soak.run(3, ("worker", "broker", "driver"))
    assert count > 0
    assert soak.kills == {"worker": 1, "broker": 1, "driver": 1}
