# SPDX-License-Identifier: Apache-2.0
"""QMF version 2 by our client: permissions, refusals, effects on other clients.

What Qpid's own tools ask is in tests/interop/test_qpid_python.py.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ClientError
from headrace.client.blocking import connect
from headrace.client.message import Message
from headrace.gateway.security.passwords import make_account
from headrace.model.policy.accounts import Permission
from headrace.server.qmf.agent import REQUEST_SIZE_MAX, SERVICE
from headrace.store.catalog.users import UserDirectory
from headrace.testing import LocalBroker
from headrace.wire.types_0_10 import decode_list, decode_map, encode_list, encode_map
from support.brokers.broker_process import until
from support.queue_contents import all_ready
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.client.blocking.channel import Channel

DIRECT, TOPIC = "qmf.default.direct", "qmf.default.topic"
BROKER = "org.apache.qpid.broker:broker:amqp-broker"
versions = pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])


class Console:
    """Asks one broker as one user."""

    def __init__(self, channel: Channel, answers: str) -> None:
        self.channel = channel
        self.answers = channel.declare_queue(answers, exclusive=True).name
        self.consumer = channel.consume(self.answers, no_ack=True)

    def send(
        self, opcode: str, body: bytes, reply_to: str | None = "", headers: Any = None
    ) -> None:
        """Send a request; no reply-to is None."""
        message = Message(
            body,
            headers={"qmf.opcode": opcode} if headers is None else headers,
            persistent=False,
            content_type="amqp/map",
            correlation_id="c1",
            reply_to=self.answers if reply_to == "" else reply_to,
        )
        self.channel.publish(message, "broker", DIRECT)

    def hear(self) -> tuple[str, Any]:
        """The next answer: opcode and content."""
        got = self.consumer.receive(PATIENCE_S)
        assert got.correlation_id == "c1"
        assert got.app_id == "qmf2"
        decode = decode_list if got.content_type == "amqp/list" else decode_map
        self.partial = bool(got.headers.get("partial"))
        return str(got.headers["qmf.opcode"]), decode(got.body)[0]

    def ask(self, opcode: str, request: Any, **how: Any) -> tuple[str, Any]:
        self.send(opcode, encode_map(request), **how)
        return self.hear()

    def call(self, method: str, target: str = BROKER, /, **arguments: Any) -> dict[str, Any]:
        """Return the result of a method."""
        opcode, content = self.ask("_method_request", request_of(method, target, arguments))
        assert opcode == "_method_response", content
        found: dict[str, Any] = content["_arguments"]
        return found

    def refused(self, method: str, target: str = BROKER, /, **arguments: Any) -> tuple[int, str]:
        """Code and text of the exception with which a method is refused."""
        return failed(*self.ask("_method_request", request_of(method, target, arguments)))

    def list(self, kind: str) -> list[dict[str, Any]]:
        """The values of all objects of a class."""
        self.send("_query_request", encode_map(query_of(kind)))
        found: list[dict[str, Any]] = []
        self.partial = True
        while self.partial:
            opcode, content = self.hear()
            assert opcode == "_query_response", content
            found += [item["_values"] for item in content]
        return found

    def names(self, kind: str, field: str = "name") -> Sequence[str]:
        return [values[field] for values in self.list(kind)]


def request_of(method: str, target: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "_object_id": {"_object_name": target},
        "_method_name": method,
        "_arguments": arguments,
    }


def query_of(kind: str) -> dict[str, Any]:
    return {"_what": "OBJECT", "_schema_id": {"_class_name": kind}}


def failed(opcode: str, content: Any) -> tuple[int, str]:
    assert opcode == "_exception", content
    return content["_values"]["error_code"], content["_values"]["error_text"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("qmf") / "audit.log"


@pytest.fixture(scope="module")
def broker(log: Path) -> Iterator[LocalBroker]:
    """A broker with users: ada has rights to what begins with `mine`, mona monitors."""
    data = log.parent / "data"
    with LocalBroker(data):
        pass
    with contextlib.closing(UserDirectory(data)) as directory:
        ours = r"^mine|^qmf\.default"
        directory.add_user(make_account("ada", "secret"))
        directory.set_permission("ada", "/", Permission("^mine", ours + "|^amq.default$", ours))
        directory.add_user(make_account("mona", "secret", ("monitoring",)))
        directory.set_permission("mona", "/", Permission("^mona", ".*", "^mona"))
    with LocalBroker(data, qmf=True, audit_log=log) as started:
        yield started


@contextlib.contextmanager
def console(
    broker: LocalBroker, user: str = "guest", version: str = "0-10", answers: str = ""
) -> Iterator[Console]:
    url = broker.url_of(user, "guest" if user == "guest" else "secret")
    with connect(f"{url}?version={version}", reconnect=None) as connection:
        with connection.channel() as channel:
            yield Console(channel, answers or f"mine.answers.{user}")


@pytest.fixture
def guest(broker: LocalBroker) -> Iterator[Console]:
    with console(broker) as one:
        yield one


@versions
def test_every_version_may_ask(broker: LocalBroker, version: str) -> None:
    with console(broker, version=version) as guest:
        guest.call("create", type="queue", name="q", properties={"durable": 1, "x-max-length": 5})
        (found,) = [values for values in guest.list("queue") if values["name"] == "q"]
        assert found["durable"] is True
        assert found["arguments"] == {"x-max-length": 5}
        assert found["creator"] == "guest"
        assert version in str(guest.names("connection", "protocol"))
        assert len(guest.list("session")) == 1
        assert guest.names("subscription") == [guest.consumer.tag]
        guest.call("delete", type="queue", name="q", options={})
        assert "q" not in guest.names("queue")


def test_what_is_made_stays_and_is_the_users_doing(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    with LocalBroker(tmp_path / "data", qmf=True, audit_log=log) as broker:
        with console(broker) as guest:
            guest.call("create", type="queue", name="kept", properties={"durable": True})
            guest.call("create", type="exchange", name="e", properties={"durable": True})
            guest.call("create", type="binding", name="e/kept/k", properties={})
            guest.refused("delete", type="queue", name="none")
        broker.restart()
        with console(broker) as guest:
            assert guest.names("queue") == ["kept", guest.answers]
            assert "e,kept,k" in [
                item["_object_id"]["_object_name"].rpartition(":")[2]
                for item in guest.ask("_query_request", query_of("binding"))[1]
            ]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    created = [line for line in lines if line["what"] == "queue.created" and "kept" in str(line)]
    assert [line["who"] for line in created] == ["guest"]
    asked = [(line["request"]["do"], line["allowed"]) for line in lines if "request" in line]
    create, delete = "qmf broker.create", "qmf broker.delete"
    assert asked == [(create, True), (create, True), (create, True), (delete, False)]


def test_many_objects_come_in_several_messages(guest: Console) -> None:
    names = [f"many.{number:03}" for number in range(120)]
    for name in names:
        guest.channel.declare_queue(name)
    assert [name for name in guest.names("queue") if name in names] == names
    guest.send("_query_request", encode_map(query_of("queue")))
    sizes = []
    guest.partial = True
    while guest.partial:
        sizes.append(len(guest.hear()[1]))
    assert len(sizes) >= 3
    assert max(sizes) <= 50
    for name in names:
        guest.channel.delete_queue(name)


def test_without_the_setting_there_is_no_agent(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalBroker(data) as broker, connect(broker.url, reconnect=None) as connection:
        with pytest.raises(ClientError, match="no exchange"):
            with connection.channel() as channel:
                channel.declare_exchange(DIRECT, passive=True)
        with connection.channel() as channel:  # Another client's, until there is an agent.
            channel.declare_exchange(DIRECT, durable=True)
            channel.declare_queue("broker", durable=True, exclusive=False)
            channel.bind_queue("broker", DIRECT, "broker")
    with LocalBroker(data, qmf=True) as broker, console(broker) as guest:
        assert guest.call("echo", sequence=1, body="b") == {"sequence": 1, "body": "b"}
        assert guest.channel.get("broker") is None


# --- Rights ---------------------------------------------------------------------------------------


@pytest.fixture
def ada(broker: LocalBroker) -> Iterator[Console]:
    """A user with rights on names that begin with `mine`, and a host with more."""
    with console(broker) as guest:
        for name in ("mine.q", "theirs.q"):
            guest.channel.declare_queue(name)
            guest.channel.publish(Message(b"m", persistent=False), name)
        with console(broker, "ada") as one:
            yield one


CREATE, DELETE = "create", "delete"
FORBIDDEN: list[tuple[str, str, dict[str, Any]]] = [
    (CREATE, BROKER, {"type": "queue", "name": "other"}),
    (CREATE, BROKER, {"type": "exchange", "name": "other"}),
    (CREATE, BROKER, {"type": "binding", "name": "qmf.default.topic/theirs.q/k"}),
    (CREATE, BROKER, {"type": "binding", "name": "amq.direct/mine.q/k"}),
    (
        CREATE,
        BROKER,
        {
            "type": "queue",
            "name": "mine.x",
            "properties": {"alternate-exchange": "amq.fanout"},
        },
    ),
    (DELETE, BROKER, {"type": "queue", "name": "theirs.q"}),
    (DELETE, BROKER, {"type": "exchange", "name": "amq.direct"}),
    ("queueMoveMessages", BROKER, {"srcQueue": "theirs.q", "destQueue": "mine.q", "qty": 0}),
    ("queueMoveMessages", BROKER, {"srcQueue": "mine.q", "destQueue": "theirs.q", "qty": 0}),
    ("purge", "org.apache.qpid.broker:queue:theirs.q", {"request": 0}),
    ("purge", "org.apache.qpid.broker:queue:theirs.q", {"request": 1}),
    (
        "reroute",
        "org.apache.qpid.broker:queue:mine.q",
        {"request": 0, "useAltExchange": False, "exchange": "amq.fanout"},
    ),
    ("reroute", "org.apache.qpid.broker:queue:theirs.q", {"request": 0, "exchange": TOPIC}),
    ("getLogLevel", BROKER, {}),
    # Of another connection's queue for answers, and the broker's own:
    (DELETE, BROKER, {"type": "queue", "name": "mine.answers.guest"}),
    ("purge", "org.apache.qpid.broker:queue:mine.answers.guest", {"request": 0}),
]


def test_who_has_no_right_is_refused(ada: Console, log: Path) -> None:
    for method, target, arguments in FORBIDDEN:
        code, text = ada.refused(method, target, **arguments)
        assert code == 6, (method, arguments, text)

    def audited() -> bool:
        refusals = [line for line in log.read_text().splitlines() if '"permission"' in line]
        return any("configure access to queue 'other'" in line for line in refusals)

    until(audited, "the audit log says so")
    ada.call(CREATE, type="queue", name="mine.own", properties={})
    ada.call("queueMoveMessages", srcQueue="mine.q", destQueue="mine.own", qty=0)
    ada.call(DELETE, type="queue", name="mine.own", options={})
    assert ada.refused("purge", f"org.apache.qpid.broker:queue:{SERVICE}", request=0)[0] == 6


def test_each_sees_what_is_theirs(ada: Console, broker: LocalBroker) -> None:
    queues = ada.names("queue")
    assert "mine.q" in queues
    assert "theirs.q" not in queues
    assert set(ada.names("exchange")) == {"", DIRECT, TOPIC}
    assert {values["queueRef"]["_object_name"] for values in ada.list("binding")} == {
        f"org.apache.qpid.broker:queue:{name}" for name in queues
    }
    assert ada.names("connection", "authIdentity") == ["ada"]
    assert len(ada.list("session")) == len(ada.list("subscription")) == 1
    assert ada.list("memory") == []
    assert "queueCount" not in ada.list("broker")[0]
    with console(broker, "mona", answers="mona.answers") as mona:
        assert {"mine.q", "theirs.q"} <= set(mona.names("queue"))
        assert SERVICE not in mona.names("queue")
        others = mona.list("connection")
        assert {values["authIdentity"] for values in others} == {"guest", "ada", "mona"}
        assert mona.list("memory")
        assert "queueCount" in mona.list("broker")[0]
        (hers,) = [one["address"] for one in others if one["authIdentity"] == "ada"]
        target = f"org.apache.qpid.broker:connection:{hers}"
        assert mona.refused("close", target)[0] == 6
        query = {"_what": "OBJECT", "_object_id": {"_object_name": target}}
        assert len(mona.ask("_query_request", query)[1]) == 1
        (own,) = [one["address"] for one in others if one["authIdentity"] == "mona"]
        assert ada.refused("close", f"org.apache.qpid.broker:connection:{own}")[0] == 1
        theirs = {"_object_id": {"_object_name": "org.apache.qpid.broker:queue:theirs.q"}}
        assert ada.ask("_query_request", {"_what": "OBJECT", **theirs}) == ("_query_response", [])


def test_answers_go_where_the_user_could_publish_or_nothing_is_done(
    ada: Console, broker: LocalBroker
) -> None:
    create = {"type": "queue", "properties": {}}
    for number, reply_to in enumerate(
        (
            "direct://amq.direct//?routingkey='mine'",
            "direct://nowhere//?routingkey='mine'",
            "topic://amq.rabbitmq.event//?routingkey='queue.created'",
            None,
        )
    ):
        request = request_of(CREATE, BROKER, {**create, "name": f"mine.{number}"})
        ada.send("_method_request", encode_map(request), reply_to)
    ada.call("echo")
    assert not [name for name in ada.names("queue") if name[5:].isdigit()]


def test_answers_reach_only_their_client(guest: Console, broker: LocalBroker) -> None:
    guest.channel.declare_queue("mine.q")
    with console(broker, "ada") as ada:
        queue = ada.channel.declare_queue("mine.ear", exclusive=True).name
        ada.channel.bind_queue(queue, TOPIC, "#")
        code, text = ada.refused(CREATE, type="binding", name=f"{DIRECT}/mine.q/broker")
        assert (code, "the broker's own" in text) == (6, True)
        answers = guest.channel.declare_queue("mine.topic", exclusive=True).name
        guest.channel.bind_queue(answers, TOPIC, "direct.secret")
        reply_to = f"direct://{TOPIC}//?routingkey='direct.secret'"
        guest.send("_query_request", encode_map(query_of("queue")), reply_to)
        guest.call("echo")
        assert guest.channel.get(answers, no_ack=True) is not None
        heard = [event.headers["qmf.opcode"] for event in all_ready(ada.channel, queue)]
        assert "_query_response" not in heard


def test_the_exchanges_stay(guest: Console, broker: LocalBroker) -> None:
    for version in ("0-9-1", "0-10"):
        with connect(f"{broker.url}?version={version}", reconnect=None) as connection:
            with pytest.raises(ClientError, match="system exchange"):
                with connection.channel() as channel:
                    channel.delete_exchange(TOPIC)
    assert guest.refused(DELETE, type="exchange", name=DIRECT)[0] == 6


# --- Nonsense -------------------------------------------------------------------------------------


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"k": value}
    return value


def test_invalid_requests_are_refused_without_effect_on_others(
    guest: Console, caplog: pytest.LogCaptureFixture
) -> None:
    whole = encode_map(query_of("queue"))
    for body in (b"", b"\0", b"{}", whole[:-1], whole + b"\0", encode_list([1]), b"\xff" * 100):
        guest.send("_query_request", body)
        assert failed(*guest.hear())[0] == 4
    guest.send("_query_request", bytes(REQUEST_SIZE_MAX + 1))
    assert failed(*guest.hear())[0] == 7
    for headers in ({}, {"qmf.opcode": "_shutdown"}, {"qmf.opcode": 7}, {"qmf.opcode": ["x"]}):
        guest.send("", whole, headers=headers)
        assert failed(*guest.hear())[0] == 4
    wrong: list[Any] = [None, 7, "x" * 5000, "\x1b[0m", ["a"], {"a": {}}, b"\xff\xfe", True, 1e300]
    for value in wrong:
        for request in (
            {"_what": value},
            {"_what": "OBJECT", "_schema_id": value},
            {"_what": "OBJECT", "_schema_id": {"_class_name": value}},
            {"_what": "OBJECT", "_object_id": value},
            {"_what": "OBJECT", "_object_id": {"_object_name": value}},
        ):
            opcode, content = guest.ask("_query_request", request)
            assert opcode == "_exception" or content == [], (request, content)
        for request in (
            {"_object_id": value},
            {"_object_id": {"_object_name": value}, "_method_name": "echo"},
            {"_object_id": {"_object_name": BROKER}, "_method_name": value},
            {**request_of("echo", BROKER, {}), "_arguments": value},
            *(
                request_of(method, BROKER, {"type": kind, "name": value, field: value})
                for method in (CREATE, DELETE)
                for kind in ("queue", "exchange", "binding")
                for field in ("properties", "options")
            ),
            request_of(CREATE, BROKER, {"type": value, "name": "n"}),
            request_of(CREATE, BROKER, {"type": "queue", "name": "", "properties": {"x": value}}),
            request_of("query", BROKER, {"type": value, "name": value}),
            request_of("queueMoveMessages", BROKER, {"srcQueue": value, "destQueue": value}),
            request_of("queueMoveMessages", BROKER, {"srcQueue": "a", "qty": value}),
            request_of("purge", "org.apache.qpid.broker:queue:none", {"request": value}),
            request_of("purge", "org.apache.qpid.broker:queue:none", {"filter": value}),
            request_of("reroute", "org.apache.qpid.broker:queue:none", {"exchange": value}),
        ):
            opcode, content = guest.ask("_method_request", request)
            assert opcode == "_exception" or request.get("_method_name") == "echo", request
    for kind in ("acl", "cluster", "habroker", "link", ""):
        assert guest.ask("_query_request", query_of(kind)) == ("_query_response", [])
    name = "org.apache.qpid.acl:acl:org.apache.qpid.broker:broker:amqp-broker"
    code, text = guest.refused("reloadACLFile", name)
    assert (code, "No object found" in text) == (1, True)
    assert guest.refused("fly")[0] == 2
    assert guest.refused("shutdown")[0] == 3
    body = deep(27)  # type: ignore[assignment]
    assert guest.call("echo", body=body) == {"body": body}
    guest.call("echo", body=deep(28))  # One level more than an answer has, beside its own.
    assert "Traceback" not in caplog.text
    assert "failed" not in caplog.text


def test_arguments_of_any_size_are_told(broker: LocalBroker) -> None:
    arguments = {f"ours-{number}": "x" * 200 for number in range(200)}
    with console(broker, version="0-9-1") as guest:
        guest.channel.declare_queue("laden", arguments=arguments)
        (found,) = [values for values in guest.list("queue") if values["name"] == "laden"]
        assert found["arguments"] == arguments
        guest.channel.delete_queue("laden")


def test_a_flood_is_answered_in_order(guest: Console) -> None:
    count = 300
    for number in range(count):
        request = request_of("echo", BROKER, {"sequence": number})
        message = Message(
            encode_map(request),
            headers={"qmf.opcode": "_method_request"},
            persistent=False,
            correlation_id="c1",
            reply_to=guest.answers,
        )
        guest.channel.publish_soon(message, "broker", DIRECT)
    for number in range(count):
        assert guest.hear()[1]["_arguments"] == {"sequence": number}
    for _ in range(count):
        guest.send("_query_request", encode_map(query_of("exchange")))
    for _ in range(count):
        assert guest.hear()[0] == "_query_response"


def test_a_list_is_refused_while_memory_is_short(
    guest: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.server.qmf.agent.is_crowded", lambda vhost: True)
    code, text = failed(*guest.ask("_query_request", query_of("queue")))
    assert (code, "memory" in text) == (7, True)
    assert guest.call("echo", body=1) == {"body": 1}


def test_events_are_told_to_who_is_bound(guest: Console) -> None:
    queue = guest.channel.declare_queue("mine.events", exclusive=True).name
    guest.channel.bind_queue(queue, TOPIC, "agent.ind.event.org_apache_qpid_broker.queueDelete.#")
    guest.channel.declare_queue("mine.gone")
    guest.channel.delete_queue("mine.gone")
    (event,) = decode_list(guest.channel.consume(queue, no_ack=True).receive(PATIENCE_S).body)[0]
    assert event["_schema_id"]["_class_name"] == "queueDelete"
    assert event["_values"] == {"qName": "mine.gone", "user": "guest"}


def test_nothing_is_changed_that_a_strict_audit_log_cannot_hold(
    guest: Console, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(broker._broker.audit), "refusal", lambda _: "refused: no room")
    assert guest.refused(CREATE, type="queue", name="unheard", properties={})[0] == 6
    assert "unheard" not in guest.names("queue")
