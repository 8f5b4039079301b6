# SPDX-License-Identifier: Apache-2.0
"""Texts and verdicts about arguments, as the field's suites know them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.model.arguments.values import (
    QUEUE_ARGUMENTS,
    age_ms,
    assert_same_arguments,
    assert_same_field,
    check_queue_arguments,
)
from headrace.model.errors import InvalidArgument, PreconditionFailed
from headrace.wire.table import Byte, Long, Single, UnsignedShort

Q = "queue 'q' in vhost '/'"


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", "soon", '"expected integer, got longstr"'),
        ("x-message-ttl", 2**40, "{value_too_large,1099511627776}"),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", True, '"expected integer, got bool"'),
        ("x-max-length", -5, "{value_negative,-5}"),
        ("x-max-length-bytes", 1.5, '"expected integer, got double"'),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-max-priority", -1, "{value_negative,-1}"),
        ("x-overflow", "drop-tail", "invalid_overflow"),
        ("x-overflow", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
        ("x-queue-mode", "eager", "\"unsupported queue mode 'eager'\""),
        ("x-queue-version", 3, "\"unsupported queue version '3'\""),
        ("x-queue-type", "fifo", "\"unsupported queue type 'fifo'\""),
        ("x-queue-type", 1, "{unacceptable_type,signedint}"),
        ("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
        ("x-cache-size", 1_000_001, "{max_value_exceeded,1000001}"),
    ],
)
def test_a_wrong_value_is_refused_with_the_known_text(name: str, value: Any, wrong: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_queue_arguments({name: value}, Q)
    assert caught.value.text == f"invalid arg '{name}' for {Q}: {wrong}"


def test_what_should_name_an_exchange_is_told_by_its_type() -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_queue_arguments({"x-dead-letter-exchange": 7}, Q)
    assert caught.value.text == f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in {Q}"


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"x-queue-type": "stream", "x-message-ttl": 5}, "x-message-ttl"),
        ({"x-queue-type": "stream", "x-max-priority": 5}, "x-max-priority"),
        ({"x-max-age": "1D"}, "x-max-age"),
    ],
)
def test_an_argument_of_another_type_of_queue_is_refused(
    arguments: dict[str, Any], wrong: str
) -> None:
    kind = arguments.get("x-queue-type", "classic")
    with pytest.raises(InvalidArgument) as caught:
        check_queue_arguments(arguments, Q)
    assert caught.value.text == f"invalid arg '{wrong}' for {Q} of queue type rabbit_{kind}_queue"


def test_good_values_and_unknown_names_pass() -> None:
    check_queue_arguments(
        {
            "x-message-ttl": 0,
            "x-expires": 1,
            "x-max-length": 0,
            "x-max-priority": 255,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "",
            "x-queue-mode": "lazy",
            "x-queue-version": 2,
            "x-queue-type": "quorum",
            "x-nobody-knows": object(),
        },
        Q,
    )
    check_queue_arguments(
        {"x-queue-type": "stream", "x-max-age": "7D", "x-max-length-bytes": 10**12}, Q
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1s", 1000),
        ("2m", 120_000),
        ("1Y", 31_536_000_000),
        ("999999999Y", 1 << 50),
        ("0s", None),
        ("h", None),
        ("5w", None),
    ],
)
def test_ages(text: str, ms: int | None) -> None:
    assert age_ms(text) == ms


@pytest.mark.rule("0-9-1/s053")
@pytest.mark.parametrize(
    ("current", "received", "text"),
    [
        (
            {},
            {"x-max-priority": 2},
            "received the value '2' of type 'signedint' but current is none",
        ),
        ({"x-max-length": 5}, {}, "received none but current is the value '5' of type 'signedint'"),
        ({"x-max-length": 5}, {"x-max-length": 6}, "received '6' but current is '5'"),
        ({"x-max-length": 5}, {"x-max-length": "5"}, "received '5' but current is '5'"),
        ({"x-max-length": Byte(5)}, {"x-max-length": True}, "received 'true' but current is '5'"),
        (
            {},
            {"x-max-length": Byte(2)},
            "received the value '2' of type 'byte' but current is none",
        ),
        (
            {"x-max-length": UnsignedShort(2)},
            {},
            "received none but current is the value '2' of type 'unsignedshort'",
        ),
        (
            {},
            {"x-max-length": Single(2.5)},
            "received the value '2.5' of type 'float' but current is none",
        ),
        (
            {},
            {"x-max-length": datetime.fromtimestamp(2, UTC)},
            "received the value '2' of type 'timestamp' but current is none",
        ),
        (
            {},
            {"x-queue-type": "quorum"},
            "received the value 'quorum' of type 'longstr' but current is none",
        ),
    ],
)
def test_inequivalent_arguments(
    current: dict[str, Any], received: dict[str, Any], text: str
) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        assert_same_arguments(current, received, QUEUE_ARGUMENTS, Q)
    assert caught.value.text.endswith(f" for {Q}: {text}")
    assert caught.value.text.startswith("inequivalent arg 'x-")


@pytest.mark.parametrize(
    ("current", "received"),
    [
        ({"x-queue-type": "classic"}, {}),
        ({}, {"x-queue-type": "classic"}),
        ({"x-max-length": 5}, {"x-max-length": 5.0}),
        ({"x-unknown": 1}, {"x-unknown": 2}),
        ({"x-overflow": "drop-head"}, {"x-overflow": b"drop-head"}),
        ({"x-max-length": Byte(5)}, {"x-max-length": 5}),
        ({"x-max-length": Long(5)}, {"x-max-length": UnsignedShort(5)}),
    ],
)
def test_equivalent_arguments(current: dict[str, Any], received: dict[str, Any]) -> None:
    assert_same_arguments(current, received, QUEUE_ARGUMENTS, Q)


@pytest.mark.rule("0-9-1/s043")
def test_an_inequivalent_flag_is_told_like_this() -> None:
    with pytest.raises(PreconditionFailed) as caught:
        assert_same_field(True, False, "durable", Q)
    assert caught.value.text == (
        f"inequivalent arg 'durable' for {Q}: received 'false' but current is 'true'"
    )
