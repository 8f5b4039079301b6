# SPDX-License-Identifier: Apache-2.0
"""Super streams: which partition a key gets, and what can be one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import InvalidArgument, NotAllowed, PreconditionFailed
from headrace.model.exchange.super_stream import murmur3_32
from headrace.model.ports import Store
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.super_stream import is_super_stream, partition_names, sorted_partitions
from headrace.model.vhost.virtual_host import VirtualHost

KIND = "x-super-stream"
STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def vhost() -> VirtualHost:
    return VirtualHost(
        "/",
        store=Store(),
        counters=Counters(now_ms=1_000_000),
        make_stream=lambda name, **options: Stream(name, StreamLog(), **options),
    )


def declare(vhost: VirtualHost, name: str = "s", **arguments: Any) -> list[str]:
    exchange_arguments = {key.replace("_", "-"): value for key, value in arguments.items()}
    vhost.declare_exchange(name, KIND, durable=True, arguments=exchange_arguments)
    return [p.stream.name for p in sorted_partitions(vhost.exchanges[name])]


def routed(vhost: VirtualHost, key: str, exchange: str = "s") -> list[str]:
    return [queue.name for queue in vhost.route(exchange, key, dict).queues]


@pytest.mark.parametrize(
    ("text", "seed", "hashed"),
    [
        ("", 0, 0),
        ("", 1, 0x514E28B7),
        ("hello", 0, 0x248BFA47),
        ("test", 0x9747B28C, 0x704B81DC),
        ("a", 0x9747B28C, 0x7FA09EA6),
        ("aa", 0x9747B28C, 0x5D211726),
        ("aaa", 0x9747B28C, 0x283E0130),
        ("aaaa", 0x9747B28C, 0x5A97808A),
        ("Hello, world!", 0x9747B28C, 0x24884CBA),
    ],
)
def test_the_hash_is_the_one_that_others_compute(text: str, seed: int, hashed: int) -> None:
    assert murmur3_32(text.encode(), seed) == hashed


def test_partitions_come_with_the_exchange_and_share_the_keys(vhost: VirtualHost) -> None:
    assert declare(vhost, x_partitions=3, x_max_age="7D") == ["s-0", "s-1", "s-2"]
    assert vhost.queues["s-1"].arguments == {**STREAM, "x-max-age": "7D"}
    seen = Counter(routed(vhost, f"key-{number}")[0] for number in range(3000))
    assert sorted(seen) == ["s-0", "s-1", "s-2"]
    assert min(seen.values()) > 900
    assert routed(vhost, "hello1") == [f"s-{murmur3_32(b'hello1') % 3}"]
    assert vhost.route("s", "key", dict).cacheable


def test_more_streams_can_be_bound_in_any_order(vhost: VirtualHost) -> None:
    assert declare(vhost) == []
    assert routed(vhost, "key") == []
    for name, order in (("z", 0), ("b", None), ("a", None), ("m", 1)):
        vhost.declare_queue(name, durable=True, arguments=STREAM)
        arguments = {} if order is None else {"x-stream-partition-order": order}
        vhost.bind("s", ("queue", name), "", arguments)
    exchange = vhost.exchanges["s"]
    assert [p.stream.name for p in sorted_partitions(exchange)] == ["z", "m", "a", "b"]
    vhost.bind("s", ("queue", "b"), "", {"x-stream-partition-order": 7})
    assert [p.stream.name for p in sorted_partitions(exchange)] == ["z", "m", "b", "a"]
    vhost.delete_queue("m")
    assert {routed(vhost, str(k))[0] for k in range(100)} == {"z", "b", "a"}


def test_the_key_itself_may_pick_the_partition(vhost: VirtualHost) -> None:
    declare(vhost, x_partitions=2, x_partition_by="key")
    assert routed(vhost, "0") == ["s-0"]
    assert routed(vhost, "1") == ["s-1"]
    assert routed(vhost, "2") == []
    vhost.declare_queue("extra", durable=True, arguments=STREAM)
    vhost.bind("s", ("queue", "extra"), "2")
    assert routed(vhost, "2") == ["extra"]


def test_the_layout_of_rabbitmq_is_understood(vhost: VirtualHost) -> None:
    vhost.declare_exchange("r", "direct", durable=True, arguments={"x-super-stream": True})
    for number in (1, 0):
        vhost.declare_queue(f"r-{number}", durable=True, arguments=STREAM)
        order = {"x-stream-partition-order": number}
        vhost.bind("r", ("queue", f"r-{number}"), str(number), order)
    vhost.declare_queue("plain")
    vhost.bind("r", ("queue", "plain"), "2")
    assert is_super_stream(vhost.exchanges["r"])
    assert [p.stream.name for p in sorted_partitions(vhost.exchanges["r"])] == ["r-0", "r-1"]
    assert not is_super_stream(vhost.exchanges["amq.direct"])


def test_it_is_declared_again_only_as_it_is(vhost: VirtualHost) -> None:
    declare(vhost, x_partitions=2)
    assert declare(vhost, x_partitions=2) == ["s-0", "s-1"]
    for arguments in ({}, {"x_partitions": 3}, {"x_partitions": 2, "x_partition_by": "key"}):
        with pytest.raises(PreconditionFailed):
            declare(vhost, **arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"x_partitions": 0}, "0 is not a number from 1 to 1000"),
        ({"x_partitions": 1001}, "1001 is not a number"),
        ({"x_partitions": True}, "true is not a number"),
        ({"x_partition_by": "size"}, "expected hash or key, not size"),
        ({"x_max_length": 3}, "super streams have no such argument"),
        ({"x_partitions": 2, "x_max_age": "soon"}, "x-max-age"),
    ],
)
def test_what_makes_no_sense_is_refused(
    vhost: VirtualHost, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(PreconditionFailed, match=said):
        declare(vhost, **arguments)
    assert "s" not in vhost.exchanges
    assert not vhost.queues


def test_it_is_durable_and_made_of_streams(vhost: VirtualHost) -> None:
    with pytest.raises(PreconditionFailed, match="non-durable"):
        vhost.declare_exchange("s", KIND)
    vhost.declare_queue("t-1")
    with pytest.raises(PreconditionFailed):
        declare(vhost, "t", x_partitions=2)
    assert list(vhost.queues) == ["t-1"]
    declare(vhost)
    with pytest.raises(PreconditionFailed, match="'t-1' is not a stream"):
        vhost.bind("s", ("queue", "t-1"))
    with pytest.raises(PreconditionFailed, match=r"'amq\.topic' is not a stream"):
        vhost.bind("s", ("exchange", "amq.topic"))
    vhost.declare_queue("u", durable=True, arguments=STREAM)
    with pytest.raises(InvalidArgument, match="x-stream-partition-order"):
        vhost.bind("s", ("queue", "u"), "", {"x-stream-partition-order": "first"})
    with pytest.raises(NotAllowed):
        vhost.declare_exchange("s", "direct", durable=True, sticky=True)
    assert partition_names("s", "direct", {"x-partitions": 3}) == []
