# SPDX-License-Identifier: Apache-2.0
"""Policies, arguments under other names, types of queues: seen by clients of every version."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.management import ask
from headrace.client import ClientError, Message, blocking
from headrace.model.policy.parameters import Key
from headrace.spec.tables import Version
from headrace.store.catalog.users import UserDirectory
from headrace.testing.broker import LocalBroker
from support.brokers.broker_process import until

every = pytest.mark.parametrize("version", [version.label for version in Version])


def say(pattern: str, to: str = "queues", **definition: Any) -> dict[str, Any]:
    keys = {name.replace("_", "-"): value for name, value in definition.items()}
    return {"pattern": pattern, "definition": keys, "apply-to": to}


VHOSTS = {  # What is laid down in each.
    "/": {
        ("policy", "short"): say("^short", max_length=2),
        ("policy", "letters"): say("^lettered", dead_letter_exchange="", overflow="reject-publish"),
        ("policy", "guarded"): say("^guarded", max_length=5),
        ("operator_policy", "guard"): say("^guarded", max_length=1),
        ("operator_policy", "bound"): say("^bound", max_length=3, overflow="reject-publish"),
        ("policy", "elsewhere"): say("^main", "exchanges", alternate_exchange="amq.fanout"),
    },
    "lax": {("vhost-metadata", "metadata"): {"unknown_arguments": "ignore"}},
    "strict": {("vhost-metadata", "metadata"): {"unknown_arguments": "refuse"}},
    "quorums": {("vhost-metadata", "metadata"): {"default_queue_type": "quorum"}},
}


def lay_down(data: Path) -> None:
    """Make virtual hosts with rules in the data directory of a broker that does not run."""
    with LocalBroker(data):
        pass
    directory = UserDirectory(data)
    for vhost, rules in VHOSTS.items():
        if vhost != "/":
            directory.add_vhost(vhost)
            permission = directory.snapshot().permissions["guest", "/"]
            directory.set_permission("guest", vhost, permission)
        directory.parameters.change({Key(vhost, *name): value for name, value in rules.items()})
    directory.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[LocalBroker]:
    lay_down(data)
    with LocalBroker(data) as broker:
        yield broker


Speak = Callable[..., blocking.Channel]


@pytest.fixture
def speak(broker: LocalBroker, version: str) -> Iterator[Speak]:
    """Open a channel of a version in a virtual host."""
    opened = []

    def open_one(vhost: str = "/") -> blocking.Channel:
        url = f"{broker.url_of(vhost=vhost)}?version={version}"
        connection = blocking.connect(url, reconnect=None)
        opened.append(connection)
        return connection.channel()

    yield open_one
    for connection in opened:
        connection.close()


def ready(channel: blocking.Channel, queue: str) -> int:
    return channel.declare_queue(queue, passive=True).message_count


def fill(channel: blocking.Channel, queue: str, count: int = 4) -> None:
    channel.publish_many((b"x" for _ in range(count)), queue)


@every
def test_a_policy_holds_for_queues_of_its_pattern(speak: Speak, version: str) -> None:
    channel = speak()
    for queue, left in ((f"short-{version}", 2), (f"long-{version}", 4)):
        channel.declare_queue(queue)
        fill(channel, queue)
        assert ready(channel, queue) == left


@every
def test_an_operator_policy_restricts_policy_and_arguments(speak: Speak, version: str) -> None:
    channel = speak()
    queue = f"guarded-{version}"
    channel.declare_queue(queue, arguments={"x-max-length": 3})
    fill(channel, queue)
    assert ready(channel, queue) == 1


@every
def test_an_operator_policy_says_how_its_length_is_kept(speak: Speak, version: str) -> None:
    channel = speak()
    own: dict[str, Any] = {"x-overflow": "drop-head"}
    for queue in (f"bound-{version}", f"bound-not-{version}"):
        channel.declare_queue(queue, arguments=own)
        for number in range(5):
            with contextlib.suppress(ClientError):  # Who confirms says that it was refused.
                channel.publish(b"%d" % number, queue)
        for number in range(3):
            message = channel.get(queue)
            assert message is not None
            assert message.body == b"%d" % number
        assert channel.get(queue) is None
        own = {"x-overflow": "none"}


@every
def test_a_policy_gives_an_exchange_its_alternate(speak: Speak, version: str) -> None:
    channel = speak()
    exchange = f"main-{version}"
    queue = f"stray-{version}"
    channel.declare_exchange(exchange, "direct")
    channel.declare_queue(queue)
    channel.bind_queue(queue, "amq.fanout")
    channel.publish(b"x", "nowhere", exchange=exchange)
    assert ready(channel, queue) == 1
    channel.delete_queue(queue)


@every
def test_other_names_of_arguments_mean_the_same(speak: Speak, version: str) -> None:
    channel = speak()
    queue = f"aliased-{version}"
    channel.declare_queue(queue, arguments={"qpid.max_count": 3, "qpid.policy_type": "ring"})
    fill(channel, queue)
    assert ready(channel, queue) == 3
    same: dict[str, Any] = {"x-max-length": 3, "x-overflow": "drop-head"}
    channel.declare_queue(queue, arguments=same)
    if version in ("0-9-1", "0-10"):  # The others ignore what an existing queue is asked for.
        with pytest.raises(ClientError, match="inequivalent arg 'x-max-length'"):
            channel.declare_queue(queue, arguments={**same, "qpid.max_count": 4, "x-max-length": 4})


@every
@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ({"qpid.max_count": 2, "qpid.policy_type": "reject"}, 0),
        ({"qpid.max_size": 2, "qpid.policy_type": "reject"}, 0),
        ({"x-max-length": 2, "x-overflow": "reject-publish"}, 2),
        ({"x-max-length-bytes": 2, "x-overflow": "reject-publish"}, 2),
    ],
)
def test_what_is_unsettled_counts_by_qpids_names_only(
    speak: Speak, version: str, arguments: dict[str, Any], taken: int
) -> None:
    channel = speak()
    queue = f"held-{version}-{min(arguments)}"
    channel.declare_queue(queue, arguments=arguments)
    fill(channel, queue, 2)
    held = [channel.get(queue), channel.get(queue)]
    for _ in range(3):
        with contextlib.suppress(ClientError):
            speak().publish(b"x", queue)
    assert ready(channel, queue) == taken
    for delivery in held:
        assert delivery is not None
        delivery.ack()
    fill(channel, queue, 2 - taken)
    assert ready(channel, queue) == 2


@every
def test_a_queue_may_ask_for_one_of_its_dead_letters(speak: Speak, version: str) -> None:
    channel = speak()
    queue = f"mortal-{version}"
    early = version in ("0-8", "0-9")  # Whose tables have no booleans.
    arguments: dict[str, Any] = {
        "x-qpid-dlq-enabled": 1 if early else True,
        "x-qpid-maximum-delivery-count": 2,
    }
    channel.declare_queue(queue, arguments=arguments)
    channel.publish(b"poison", queue)
    returned = 0
    while not early and (message := channel.get(queue)) is not None:
        message.reject(requeue=True)
        returned += 1
    assert returned == 2 or early
    if early:  # Where a message that is rejected goes to others.
        message = channel.get(queue)
        assert message is not None
        message.reject(requeue=False)
    assert ready(channel, f"{queue}_DLQ") == 1


@every
def test_priorities_by_levels(speak: Speak, version: str) -> None:
    channel = speak()
    queue = f"levels-{version}"
    channel.declare_queue(queue, arguments={"x-qpid-priorities": 2})
    for priority in (0, 4, 5, 9, 3):
        channel.publish(Message(str(priority).encode(), priority=priority), queue)
    deliveries = [channel.get(queue, no_ack=True) for _ in range(5)]
    assert [message and message.body for message in deliveries] == [b"5", b"9", b"0", b"4", b"3"]


@every
def test_what_would_change_behaviour_unseen_is_refused(speak: Speak, version: str) -> None:
    queue = f"strange-{version}"
    text = "invalid arg 'x-qpid-replay-period' for queue"
    with pytest.raises(ClientError, match=text):
        speak().declare_queue(queue, arguments={"x-qpid-replay-period": 5})
    channel = speak()
    with pytest.raises(ClientError):
        channel.declare_queue(queue, passive=True)  # It was not made.


@every
def test_each_virtual_host_says_what_strange_names_do(speak: Speak, version: str) -> None:
    queue = f"strange-{version}"
    strange: dict[str, Any] = {"team": "billing", "x-qpid-replay-period": 5}
    assert speak("lax").declare_queue(queue, arguments=strange).name == queue
    with pytest.raises(ClientError, match="invalid arg 'team' for queue"):
        speak("strict").declare_queue(queue, arguments={"team": "billing"})
    if version == "0-10":  # Which refuses it by its standard.
        with pytest.raises(ClientError, match="invalid arg 'team' for queue"):
            speak().declare_queue(queue, arguments={"team": "billing"})
    else:
        speak().declare_queue(queue, arguments={"team": "billing"})


@every
def test_strange_arguments_of_exchanges_fare_alike(speak: Speak, version: str) -> None:
    text = "invalid arg 'qpid.cat' for exchange"
    with pytest.raises(ClientError, match=text):
        speak("strict").declare_exchange("x", "direct", arguments={"qpid.cat": 1})
    speak("lax").declare_exchange("x", "direct", arguments={"qpid.cat": 1, "x-algorithm": "jump"})
    with pytest.raises(ClientError, match="invalid arg 'hash-property' for exchange"):
        speak().declare_exchange("x", "direct", arguments={"hash-property": "message_id"})
    if version != "0-10":
        speak().declare_exchange("strange", "direct", arguments={"qpid.cat": 1})


@every
def test_an_alternate_exchange_has_several_names(speak: Speak, version: str) -> None:
    channel = speak()
    queue = f"unrouted-{version}"
    channel.declare_queue(queue)
    channel.bind_queue(queue, "amq.fanout")
    names = ("alternate-exchange", "x-alternate-exchange", "alternateExchange")
    for argument in names:
        exchange = f"{argument}-{version}"
        channel.declare_exchange(exchange, "direct", arguments={argument: "amq.fanout"})
        channel.publish(b"x", "nowhere", exchange=exchange)
    assert ready(channel, queue) == 3
    channel.delete_queue(queue)
    both = dict(zip(names, ("amq.fanout", "amq.fanout", "b"), strict=True))
    with pytest.raises(ClientError, match="it contradicts 'alternate-exchange'"):
        speak().declare_exchange(f"both-{version}", "direct", arguments=both)
    speak("lax").declare_exchange(f"both-{version}", "direct", arguments=both)


@every
def test_strange_arguments_of_bindings_fare_alike(speak: Speak, version: str) -> None:
    text = "invalid arg 'qpid.cat' for a binding of exchange 'amq.direct'"
    queue = f"tied-{version}"
    for vhost in "strict", "lax", "/":
        speaker = speak(vhost)
        speaker.declare_queue(queue)
        if vhost == "strict" or (vhost == "/" and version == "0-10"):
            with pytest.raises(ClientError, match=text):
                speaker.bind_queue(queue, "amq.direct", "k", arguments={"qpid.cat": 1})
        else:
            speaker.bind_queue(queue, "amq.direct", "k", arguments={"qpid.cat": 1})
    speaker = speak("strict")
    speaker.bind_queue(queue, "amq.headers", "", arguments={"x-match": "any", "qpid.cat": 1})
    speaker.bind_queue(queue, "amq.topic", "k", arguments={"x-apache-selector": "a = 1"})


@every
def test_contradictory_arguments_are_refused(speak: Speak, version: str) -> None:
    for arguments, text in (
        ({"qpid.max_count": 1, "x-max-length": 2}, "it contradicts 'x-max-length'"),
        (
            {"x-delayed-retry-min": 500, "x-delayed-retry-max": 100},
            "500 is more than 'x-delayed-retry-max', 100",
        ),
        ({"qpid.priorities": 2, "x-max-priority": 5}, "it contradicts 'x-max-priority'"),
        ({"x-queue-type": "stream", "x-message-ttl": 5}, "of queue type rabbit_stream_queue"),
        (
            {"x-dead-letter-strategy": "at-least-once", "x-overflow": "drop-head"},
            "at-least-once contradicts",
        ),
    ):
        with pytest.raises(ClientError, match=text):
            speak().declare_queue(f"no-{version}", durable=True, arguments=arguments)  # type: ignore[arg-type]


@every
def test_a_quorum_queue_is_durable_and_limits_deliveries(speak: Speak, version: str) -> None:
    quorum: dict[str, Any] = {"x-queue-type": "quorum"}
    hints: dict[str, Any] = {
        "x-quorum-initial-group-size": 3,
        "x-queue-leader-locator": "balanced",
        "x-dead-letter-strategy": "at-least-once",
    }
    with pytest.raises(ClientError, match="invalid property 'non-durable' for queue"):
        speak().declare_queue(f"q-{version}", durable=False, arguments=quorum)
    channel = speak()
    queue = f"quorum-{version}"
    channel.declare_queue(queue, durable=True, arguments={**quorum, **hints})
    channel.publish(b"poison", queue)
    returned = 0
    while (message := channel.get(queue)) is not None:
        message.reject(requeue=True)
        returned += 1
    assert returned == 21 or version in ("0-8", "0-9")  # Where a reject may mean: to others only.


@every
def test_durable_queues_get_the_default_type(speak: Speak, version: str) -> None:
    channel = speak("quorums")
    queue = f"default-{version}"
    channel.declare_queue(queue, durable=True)
    channel.declare_queue(queue, durable=True)  # Again, as it was.
    channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.declare_queue(f"passing-{version}", durable=False)  # Which a quorum queue cannot be.
    if version in ("0-9-1", "0-10"):
        with pytest.raises(ClientError, match="inequivalent arg 'x-queue-type'"):
            channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "classic"})


def test_what_holds_for_a_queue_is_shown(broker: LocalBroker, data: Path) -> None:
    channel = channel_of(broker)
    channel.queue_declare("guarded-shown", arguments={"x-max-length": 3, "x-expires": 60000})
    shown = ask(data / "management.sock", "show queue", name="guarded-shown", vhost="/")
    assert (shown["policy"], shown["operator_policy"]) == ("guarded", "guard")
    assert (shown["max_length"], shown["user"]) == (1, "guest")
    assert shown["arguments"] == {"x-max-length": 3, "x-expires": 60000}
    assert shown["effective_arguments"] == {"x-max-length": 1, "x-expires": 60000}
    quorum: dict[str, Any] = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}
    channel.queue_declare("three", durable=True, arguments=quorum)
    shown = ask(data / "management.sock", "show queue", name="three", vhost="/")
    assert (shown["type"], shown["replicas"], len(shown["members"])) == ("quorum", 1, 1)
    channel.connection.close()


def channel_of(broker: LocalBroker) -> Any:
    return pika.BlockingConnection(pika.URLParameters(broker.url)).channel()


def test_texts_that_pika_users_match(broker: LocalBroker) -> None:
    channel = channel_of(broker)
    channel.queue_declare("short-pika")
    subject = "for queue 'short-pika' in vhost '/'"
    for arguments, text in (
        (
            {"x-max-length": 2},  # What the policy says is not what was declared.
            (
                f"inequivalent arg 'x-max-length' {subject}: received the value '2' of type "
                "'signedint' but current is none"
            ),
        ),
        (
            {"qpid.max_count": "x"},
            f"invalid arg 'qpid.max_count' {subject}: expected a number",
        ),
    ):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.queue_declare("short-pika", arguments=arguments)
        assert (closed.value.reply_code, closed.value.reply_text) == (
            406,
            f"PRECONDITION_FAILED - {text}",
        )
        channel = channel.connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("quorum-pika", arguments={"x-queue-type": "quorum"})
    assert closed.value.reply_text == (
        "PRECONDITION_FAILED - invalid property 'non-durable' for queue 'quorum-pika' in vhost '/'"
    )
    channel.connection.close()


def run(data: Path, *words: str) -> str:
    """Run a command of ours on the data directory; return what it prints."""
    result = CliRunner().invoke(main, [*words, "--data", str(data)])
    assert result.exit_code == 0, result.output
    return result.output


def test_policies_change_what_is_there_and_last(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        channel = channel_of(broker)
        channel.queue_declare("orders", durable=True)
        channel.queue_declare("dead")
        channel.confirm_delivery()
        for number in range(5):
            channel.basic_publish("", "orders", f"{number}".encode())
        count = lambda name: channel.queue_declare(name, passive=True).method.message_count  # noqa: E731
        definition = (
            '{"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"}'
        )
        run(tmp_path, "policy", "set", "short", "^ord", definition, "--priority", "3")
        until(lambda: count("orders") == 2 and count("dead") == 3, "the policy shortens the queue")
        run(tmp_path, "operator-policy", "set", "guard", ".*", '{"max-length": 1}')
        until(lambda: count("orders") == 1, "the operator policy shortens it further")
        listed = run(tmp_path, "policy", "list", "--no-header").split("\t")
        assert listed[:5] == ["/", "short", "^ord", "all", "3"]
        channel.connection.close()

        broker.restart()
        channel = channel_of(broker)
        for _ in range(3):
            channel.basic_publish("", "orders", b"x")
        until(lambda: count("orders") == 1, "it holds after a restart")
        run(tmp_path, "operator-policy", "clear", "guard")
        run(tmp_path, "policy", "set", "ttl", "^ord", '{"message-ttl": 1}', "--priority", "9")
        until(lambda: count("orders") == 0, "what waits there expires")
        run(tmp_path, "policy", "clear", "ttl")
        run(tmp_path, "policy", "clear", "short")

        def roomy() -> bool:
            for _ in range(3):
                channel.basic_publish("", "orders", b"x")
            return count("orders") >= 3

        until(roomy, "without policies it has no limit")
        channel.connection.close()


AT_LEAST_ONCE = '{"dead-letter-strategy": "at-least-once", "overflow": "drop-head"}'


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("policy", "set", "p", "(", '{"expires": 1}'),
            "pattern '(' is not a valid regular expression",
        ),
        (
            ("policy", "set", "p", "(a{999}){999}", '{"expires": 1}'),
            "is not a valid regular expression",
        ),
        (("policy", "set", "p", "a" * 2000, '{"expires": 1}'), "longer than 1024 characters"),
        (("policy", "set", "p", "(?=a)", '{"expires": 1}'), "is not a valid regular expression"),
        (("policy", "set", "p", "x", '{"max-length": -1}'), "of 'max-length': -1 is negative"),
        (("policy", "set", "p", "x", '{"max-age": "{0}"}', "--apply-to", "streams"), "'max-age'"),
        (("policy", "set", "p", "x", '{"colour": "red"}'), "unknown policy key 'colour'"),
        (
            ("policy", "set", "p", "x", '{"delivery-limt": 3}'),
            "unknown policy key 'delivery-limt'; did you mean 'delivery-limit'?",
        ),
        (
            ("policy", "set", "p", "x", AT_LEAST_ONCE),
            "contradicts overflow",
        ),
        (("policy", "set", "p", "x", "[" * 30000), "the definition is not valid JSON"),
        (("policy", "set", "p", "x", '{"expires": 1e999}'), "larger than a double can be"),
        (("policy", "set", "p", "x", '{"expires": NaN}'), "NaN is not a JSON number"),
        (("policy", "set", "p", "x", "{"), "the definition is not valid JSON"),
        (("policy", "set", "p", "x", '{"expires": 1, "expires": 2}'), '"expires" occurs twice'),
        (("policy", "set", "p", "x", "[1]"), "has no definition"),
        (("policy", "set", "p" * 256, "x", '{"expires": 1}'), "at most 255 bytes"),
        (("policy", "set", "p", "x", '{"expires": 1}', "--vhost", "no"), "no virtual host 'no'"),
        (
            ("policy", "set", "p", "x", " " * 70000),
            "a definition may have at most 65536 characters",
        ),
        (("policy", "clear", "p"), "there is no policy 'p' in virtual host '/'"),
        (("limits", "set", "max-queues", "5", "--user", "no"), "there is no user 'no'"),
        (("limits", "set", "max-message-rate", "0", "--vhost", "/"), "must be at least 1"),
    ],
)
def test_commands_refuse_what_is_wrong(data: Path, words: tuple[str, ...], told: str) -> None:
    with contextlib.closing(UserDirectory(data)) as directory:
        before = directory.snapshot()
        result = CliRunner().invoke(main, [*words, "--data", str(data)])
        assert directory.snapshot() == before
    assert result.exit_code == 1
    assert told in result.output
    assert "Traceback" not in result.output
