# SPDX-License-Identifier: Apache-2.0
"""Eight bytes choose the version."""

from __future__ import annotations

import pytest

from headrace.protocol.negotiate import BEST, HEADERS, SERVED, negotiate
from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version


def test_the_header_of_a_served_version_is_accepted() -> None:
    assert negotiate(b"AMQP\x00\x00\x09\x01") is V0_9_1


@pytest.mark.rule("0-9-1/connection.start#01")
@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x01\x01\x08\x00",
        b"AMQP\x01\x01\x09\x01",
        b"AMQP\x01\x01\x00\x09",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x00\x01\x00\x00",  # 1.0
        b"AMQP\x03\x01\x00\x00",  # 1.0 with SASL
        b"AMQP\x00\x00\x09\x02",
        b"GET / HT",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"\x00" * 8,
    ],
)
def test_other_headers_are_answered_with_the_best_we_serve(header: bytes) -> None:
    assert negotiate(header) == b"AMQP\x00\x00\x09\x01"


def test_headers_name_their_versions() -> None:
    assert HEADERS[b"AMQP\x01\x01\x08\x00"] is V0_8
    assert HEADERS[b"AMQP\x01\x01\x09\x01"] is V0_8
    assert HEADERS[b"AMQP\x01\x01\x00\x09"] is V0_9
    assert HEADERS[b"AMQP\x01\x01\x00\x0a"] is V0_10
    assert {version.label for version in Version} == {"0-8", "0-9", "0-9-1", "0-10"}
    assert SERVED[BEST]
    assert set(SERVED) == set(Version)
