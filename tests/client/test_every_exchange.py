# SPDX-License-Identifier: Apache-2.0
"""Exchange features of other brokers, used by our client in every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, Returned, blocking
from headrace.protocol import codec_0_10, codec_0_x
from support.clients.client_fixtures import channel_of
from support.conversations.version_conversations import IDS, ONCE, Name, every, listed, said, taken

if TYPE_CHECKING:
    from headrace.testing.broker import LocalBroker


CHOOSING: dict[str, tuple[str, dict[str, Any]]] = {
    "hash-header": ("x-consistent-hash", {"hash-header": "k"}),
    "x-hash-on": ("x-consistent-hash", {"x-hash-on": "k", "x-algorithm": "jump"}),
    "hash-property": ("x-consistent-hash", {"hash-property": "correlation_id"}),
    "x-modulus-hash": ("x-modulus-hash", {}),
    "x-random": ("x-random", {}),
    "x-local-random": ("x-local-random", {}),
}


@every
@pytest.mark.parametrize(("kind", "arguments"), CHOOSING.values(), ids=CHOOSING)
def test_each_message_goes_to_one_queue(
    channel: blocking.Channel, name: Name, kind: str, arguments: dict[str, Any]
) -> None:
    channel.declare_exchange(name(), kind, auto_delete=True, arguments=arguments)
    for queue in "xyz":
        channel.declare_queue(name(queue))
        channel.bind_queue(name(queue), name(), "1" if "hash" in kind else "")
    words = [f"{key}{number}" for number in range(3) for key in "abcd"]
    for word in words:
        message = said(word)
        message.correlation_id = word[0]
        channel.publish(message, word[0] if kind == "x-modulus-hash" else "same", name())
    queue_words = [taken(channel, name(queue)).split() for queue in "xyz"]
    assert sorted(word for some in queue_words for word in some) == sorted(words)
    if "random" not in kind:  # Messages with one key are in one queue.
        keys = ["".join(sorted({word[0] for word in some})) for some in queue_words]
        assert sorted("".join(keys)) == list("abcd")


REMEMBERING: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "x-recent-history": (
        "x-recent-history", {"x-recent-history-length": 2}, "a1 b1 c1 | d1", "b1 c1 d1",
    ),
    "qpid.ive": ("fanout", {"qpid.ive": 1}, "a1 b1 | c1", "b1 c1"),
    "x-message-deduplication": ("x-message-deduplication", {}, "| a1 a2 b1 a3", "a1 b1"),
    "x-cache-size": ("topic", {**ONCE, "x-cache-size": 1}, "| a1 a2 b1 a3", "a1 b1 a3"),
    "x-cache-ttl": ("direct", {**ONCE, "x-cache-ttl": 60_000}, "| a1 a2 b1 a3", "a1 b1"),
}  # fmt: skip


@every
@pytest.mark.parametrize(
    ("kind", "arguments", "sent", "given"), REMEMBERING.values(), ids=REMEMBERING
)
def test_an_exchange_remembers(
    channel: blocking.Channel,
    name: Name,
    kind: str,
    arguments: dict[str, Any],
    sent: str,
    given: str,
) -> None:
    channel.declare_exchange(name(), kind, arguments=arguments)
    channel.declare_queue(name("q"))
    for word in sent.split():
        if word == "|":
            channel.bind_queue(name("q"), name(), "key")
        else:
            channel.publish(said(word, IDS), "key", name())
    assert taken(channel, name("q")) == given
    channel.delete_exchange(name())


@every
def test_exchanges_that_number_and_bindings_that_exclude(
    channel: blocking.Channel, name: Name
) -> None:
    channel.declare_exchange(name(), "direct", arguments={"qpid.msg_sequence": 1})
    numbers = []
    for queue in "xy":
        channel.declare_queue(name(queue))
        channel.bind_queue(name(queue), name(), "key", {"qpid.exclusive-binding": 1})
        channel.publish(Message(b""), "key", name(), mandatory=True)
        delivery = channel.get(name(queue), no_ack=True)
        assert delivery is not None
        numbers.append(delivery.headers["qpid.msg_sequence"])
    assert numbers == [1, 2]
    assert channel.get(name("x")) is None
    channel.delete_exchange(name())


@every
def test_further_routing_keys(channel: blocking.Channel, name: Name) -> None:
    for queue in "xyz":
        channel.declare_queue(name(queue))
    channel.publish(Message(b"", headers={"CC": [name("y")], "BCC": [name("z")]}), name("x"))
    for queue in "xyz":
        delivery = channel.get(name(queue), no_ack=True)
        assert delivery is not None
        assert "BCC" not in delivery.headers
        assert listed(delivery.headers["CC"]) == [name("y")]


@every
def test_an_alternate_gets_what_no_routing_key_leads_anywhere(
    channel: blocking.Channel, name: Name
) -> None:
    channel.declare_exchange(name("rest"), "fanout")
    channel.declare_exchange(name(), "direct", arguments={"alternate-exchange": name("rest")})
    channel.declare_queue(name("taken"))
    channel.declare_queue(name("left"))
    channel.bind_queue(name("taken"), name(), "a")
    channel.bind_queue(name("left"), name("rest"))
    for key, other in (("a", "b"), ("b", "a"), ("b", "c")):
        channel.publish(Message(key.encode(), headers={"CC": [other]}), key, name())
    assert taken(channel, name("taken")) == "a b"
    assert taken(channel, name("left")) == "b"
    channel.delete_exchange(name())
    channel.delete_exchange(name("rest"))


@every
@pytest.mark.parametrize(
    ("match", "given"),
    [
        ("all", "both one"),  # Without those whose names begin with x-.
        ("any", "both one"),
        ("all-with-x", "both"),
        ("any-with-x", "both one x-too"),
    ],
)
def test_headers_match(channel: blocking.Channel, name: Name, match: str, given: str) -> None:
    channel.declare_queue(name())
    wanted: dict[str, Any] = {"x-match": match, "x-a": 1, "b": "yes"}
    channel.bind_queue(name(), "amq.headers", name("key"), arguments=wanted)
    sent: dict[str, dict[str, Any]] = {
        "both": {"x-a": 1, "b": "yes"},
        "one": {"x-a": 2, "b": "yes"},
        "x-too": {"x-a": 1, "b": "no"},
        "none": {"b": "no"},
    }
    for body, headers in sent.items():
        channel.publish(Message(body.encode(), headers=headers), "", "amq.headers")
    assert taken(channel, name()) == given


@every
def test_what_comes_back_says_why_and_is_whole(channel: blocking.Channel, name: Name) -> None:
    sent = Message(b"lost", headers={"n": 1}, message_id="7", priority=3)
    with pytest.raises(Returned) as caught:
        channel.publish(sent, name("nowhere"), "amq.direct", mandatory=True)
    back = caught.value
    assert (back.exchange, back.routing_key) == ("amq.direct", name("nowhere"))
    assert (back.message.body, back.message.headers) == (b"lost", {"n": 1})
    assert (back.message.message_id, back.message.priority) == ("7", 3)
    assert back.code == 312


@every
def test_what_is_bound_is_told(
    connection: blocking.Connection, channel: blocking.Channel, name: Name, version: str
) -> None:
    channel.declare_queue(name())
    channel.bind_queue(name(), "amq.direct", "yes")
    where: dict[str, Any] = {"exchange": "amq.direct", "queue": name()}
    for key, bound in (("yes", True), ("no", False)):
        if version == "0-10":
            with connection.session() as session:
                asked = codec_0_10.ExchangeBound(**where, binding_key=key)
                assert bool(session.call(asked).key_not_matched) is not bound
        else:
            told = channel.call(codec_0_x.ExchangeBound(**where, routing_key=key))
            assert isinstance(told, codec_0_x.ExchangeBoundOk)
            assert (told.reply_code == 0) is bound


@every
def test_a_binding_between_exchanges_holds_for_publishers_of_every_version(
    headrace_broker: LocalBroker, channel: blocking.Channel, name: Name
) -> None:
    with (  # Other versions have no method for it.
        blocking.connect(f"{headrace_broker.url}?version=0-9-1") as connection,
        connection.channel() as other,
    ):
        other.declare_exchange(name("inner"), "fanout", auto_delete=True)
        other.bind_exchange(name("inner"), "amq.direct", name("key"))
    channel.declare_queue(name())
    channel.bind_queue(name(), name("inner"))
    channel.publish(said("a1"), name("key"), "amq.direct")
    assert taken(channel, name()) == "a1"


@every
def test_further_routing_keys_count_in_every_exchange_that_is_passed(
    headrace_broker: LocalBroker, channel: blocking.Channel, name: Name
) -> None:
    """A message reaches each queue once, and unroutable messages the alternate exchange."""
    with channel_of(f"{headrace_broker.url}?version=0-9-1") as other:
        other.declare_exchange(
            name("outer"), "direct", arguments={"alternate-exchange": "amq.fanout"}
        )
        other.declare_exchange(name("inner"), "topic")
        other.bind_exchange(name("inner"), name("outer"), "first")
        for queue in "xz":
            other.declare_queue(name(queue))
        other.bind_queue(name("x"), name("inner"), "second")
        other.bind_queue(name("z"), "amq.fanout")
        headers: dict[str, Any] = {"CC": ["first"], "BCC": ["second"]}
        channel.publish(Message(b"found", headers=headers), "nowhere", name("outer"))
        channel.publish(Message(b"lost", headers={"CC": ["x"]}), "nowhere", name("outer"))
        assert taken(other, name("x")) == "found"
        assert taken(other, name("z")) == "lost"
        assert other.get(name("z")) is None
        for exchange in "outer", "inner":
            other.delete_exchange(name(exchange))
        for queue in "xz":
            other.delete_queue(name(queue))
