# SPDX-License-Identifier: Apache-2.0
"""Segments of these tests are smaller than a piece of a recovery; pieces are made smaller still."""

import pytest

from headrace.store.journal import recovery

PIECE = 1000  # Bytes: most records are shorter, some are not.


@pytest.fixture(autouse=True)
def read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have recoveries read many pieces of each segment."""
    monkeypatch.setattr(recovery, "CHUNK", PIECE)
