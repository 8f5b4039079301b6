# SPDX-License-Identifier: Apache-2.0
"""Eight bytes choose the version."""

from __future__ import annotations

import pytest

from headrace.protocol.version_negotiation import BEST, HEADERS, SERVED, negotiate
from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (b"AMQP\x01\x01\x08\x00", V0_8),
        (b"AMQP\x01\x01\x09\x01", V0_8),  # As amqplib asks for it.
        (b"AMQP\x01\x01\x00\x09", V0_9),
        (b"AMQP\x00\x00\x09\x01", V0_9_1),
    ],
)
def test_the_header_of_a_served_version_is_accepted(header: bytes, version: Version) -> None:
    assert negotiate(header) is version


@pytest.mark.rule("0-9/connection.start#server-support")
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (b"AMQP\x01\x01\x09\x00", V0_9_1),  # 9.0: higher than any.
        (b"AMQP\x01\x01\xff\xff", V0_9_1),
        (b"AMQP\x00\x00\x09\x02", V0_9_1),
        (b"AMQP\x00\x00\x09\x00", V0_9),
        (b"AMQP\x00\x00\x08\x05", V0_8),
        (b"AMQP\x01\x01\x00\x08", V0_8),
        (b"AMQP\x01\x01\x00\x07", V0_9_1),  # All that we serve is later.
    ],
)
def test_no_later_version_is_proposed_than_was_asked_for(asked: bytes, answer: Version) -> None:
    assert negotiate(asked) == answer.header


@pytest.mark.rule("0-9-1/connection.start#01")
@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x01\x01\x00\x0b",
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
