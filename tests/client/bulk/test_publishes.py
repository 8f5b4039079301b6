# SPDX-License-Identifier: Apache-2.0
"""Many publishes encoded at once are, octet for octet, what sending them one by one makes."""

import random
import struct
from array import array

import pytest

from headrace.client import Message
from headrace.client.bulk.encode import Octets, RowError, encode_properties, encode_publishes
from headrace.client.message import encode_header
from headrace.protocol.codec_0_x import BasicPublish, encode_method
from headrace.protocol.v0_x.frames import make_frame
from headrace.spec.tables import V0_9_1

FRAME_MAX = 4096
PLAIN = encode_properties(Message(b""))


def one_by_one(
    exchange: str, routing_key: str, message: Message, frame_max: int = FRAME_MAX
) -> bytes:
    method = BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=True)
    limit = frame_max - 8
    body = message.body
    return b"".join(
        [
            make_frame(1, 7, encode_method(V0_9_1, method)),
            make_frame(2, 7, encode_header(message)),
            *[make_frame(3, 7, body[at : at + limit]) for at in range(0, len(body), limit)],
        ]
    )


def test_rows_become_the_frames_of_single_publishes() -> None:
    dice = random.Random(7)
    rows = []
    for n in range(200):
        size = dice.choice((0, 1, 200, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX))
        message = Message(dice.randbytes(size), message_id=f"{n}", persistent=bool(n % 2))
        rows.append((dice.choice(("", "e", "x" * 255)), "k" * dice.randrange(256), message))

    columns = (
        Octets.of(exchange.encode() for exchange, _, _ in rows),
        Octets.of(key.encode() for _, key, _ in rows),
        Octets.of(encode_properties(message) for _, _, message in rows),
        Octets.of(message.body for _, _, message in rows),
    )
    sent = b""
    row = pieces = 0
    while row < len(rows):
        octets, row = encode_publishes(7, FRAME_MAX, *columns, row, len(rows), octets_max=20_000)
        sent += octets
        pieces += 1

    assert sent == b"".join(one_by_one(*row) for row in rows)
    assert pieces > 10


def test_one_value_serves_all_rows() -> None:
    bodies = [b"a", b"bc", b""]
    octets, row = encode_publishes(
        7, FRAME_MAX, Octets(b"e"), Octets(b"k"), Octets(PLAIN), Octets.of(bodies), 0, 3
    )
    assert row == 3
    assert bytes(octets) == b"".join(one_by_one("e", "k", Message(body)) for body in bodies)


@pytest.mark.parametrize("kind", ["binary", "large_binary", "string", "large_string"])
def test_arrow_columns_are_read_where_they_are(kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    values = [f"value {n}" * (n % 3) for n in range(50)]
    column = pa.array(values, pa.string()).cast(getattr(pa, kind)())
    for part, expected in ((column, values), (column.slice(10, 20), values[10:30])):
        octets, _ = encode_publishes(
            7, FRAME_MAX, Octets(b""), Octets(b"q"), Octets(PLAIN), Octets.arrow(part), 0, len(part)
        )
        expected_publishes = [one_by_one("", "q", Message(text.encode())) for text in expected]
        assert bytes(octets) == b"".join(expected_publishes)
    assert Octets.arrow(column.slice(0, 0)).rows == 0
    with pytest.raises(ValueError, match="nulls"):
        Octets.arrow(pa.array(["a", None]))


def test_a_row_that_cannot_be_sent_is_named() -> None:
    keys = Octets.of([b"k", b"k" * 256])
    with pytest.raises(RowError, match="routing key") as error:
        encode_publishes(7, FRAME_MAX, Octets(b""), keys, Octets(PLAIN), Octets(b"x"), 0, 2)
    assert error.value.row == 1
    long = Octets(struct.pack(">H", 0) + bytes(FRAME_MAX))
    with pytest.raises(RowError, match="properties"):
        encode_publishes(7, FRAME_MAX, Octets(b""), Octets(b"k"), long, Octets(b"x"), 0, 1)


@pytest.mark.parametrize("offsets", [[0, 4, 2], [0, 2, 9], [-1, 2, 3]])
def test_offsets_that_lead_nowhere_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offset"):
        Octets(b"abcd", array("q", offsets))


def test_a_column_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        Octets(b"abcd", array("q", [0, 4]), rows=2)
    few = Octets.of([b"a"])
    with pytest.raises(ValueError, match="rows"):
        encode_publishes(7, FRAME_MAX, Octets(b""), few, Octets(PLAIN), Octets(b"x"), 0, 2)
