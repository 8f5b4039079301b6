# SPDX-License-Identifier: Apache-2.0
"""Messages published, got, moved and deleted by operations, as the system user and as a user."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.blocking import connect
from support.brokers.broker_process import Served
from support.management_socket import ManagementClient, OperationRefused, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.testing import LocalBroker

PROPERTIES = {
    "content_type": "text/plain",
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "timestamp": 1_700_000_000,
    "headers": {"n": 1, "list": [True, None, "x"], "in": {"deep": 1.5}},
}


def publish(operator: ManagementClient, queue: str, *payloads: str, **properties: object) -> None:
    """Publish messages to a queue."""
    for payload in payloads:
        fields = {"routing_key": queue, "payload": payload, "properties": properties}
        assert operator.ask("publish", **fields) == {"routed": True}


def test_only_what_is_done_is_logged_as_done(
    operator: ManagementClient, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("q", "r"):
        operator.ask("declare queue", name=name)
    publish(operator, "q", "m")
    move = {"from": "q", "to": "r", "id": "move-1"}
    assert operator.ask("move messages", **move, dry_run=True)["state"] == "dry"
    assert "has messages of" not in caplog.text
    assert operator.ask("move messages", **move)["state"] == "done"
    assert caplog.text.count("has messages of 'q' in '/': move") == 1
    assert operator.ask("move messages", **move)["already"]
    assert caplog.text.count("has messages of") == 1


def bodies(client: ManagementClient, queue: str) -> list[str]:
    """Return the bodies of the messages of a queue, left as they are."""
    return [row["body"] for row in client.items("peek", queue=queue, count=1000)]


def test_a_published_message_comes_with_its_properties_to_a_consumer(
    operator: ManagementClient, broker: LocalBroker
) -> None:
    operator.ask("declare queue", name="q")
    payload = base64.b64encode(bytes(range(256))).decode()
    fields = {"routing_key": "q", "payload": payload, "payload_encoding": "base64"}
    assert operator.ask("publish", properties=PROPERTIES, **fields) == {"routed": True}
    with connect(broker.url) as connection:
        message = connection.channel().get("q", no_ack=True)
        assert message is not None
        assert message.body == bytes(range(256))
        assert message.content_type == "text/plain"
        assert message.headers == PROPERTIES["headers"]
        assert message.priority == 3


def test_large_and_empty_bodies_come_whole(operator: ManagementClient, broker: LocalBroker) -> None:
    operator.ask("declare queue", name="q")
    publish(operator, "q", "", "x" * 500_000)
    with connect(f"{broker.url}?frame_max=4096") as connection:
        channel = connection.channel()
        got = [channel.get("q", no_ack=True) for _ in range(2)]
        assert [len(one.body) for one in got if one is not None] == [0, 500_000]


def test_what_no_queue_gets_is_not_routed(operator: ManagementClient) -> None:
    assert operator.ask("publish", routing_key="none", payload="x") == {"routed": False}
    assert operator.ask("publish", exchange="amq.topic", routing_key="a", payload="x") == {
        "routed": False
    }
    assert refusal(operator, "publish", exchange="none", payload="x") == "not-found"
    operator.ask("declare exchange", name="inner", internal=True)
    assert refusal(operator, "publish", exchange="inner", payload="x") == "refused"


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": 5},
        {"payload": "!", "payload_encoding": "base64"},
        {"payload": "x", "payload_encoding": "hex"},
        {"payload": "\ud800"},
        {"properties": [1]},
        {"properties": {"colour": "red"}},
        {"properties": {"priority": "high"}},
        {"properties": {"priority": 256}},
        {"properties": {"delivery_mode": True}},
        {"properties": {"headers": [1]}},
        {"properties": {"headers": {"n" * 256: 1}}},
        {"properties": {"content_type": "x" * 256}},
        {"routing_key": "k" * 256},
    ],
)
def test_what_is_no_message_is_refused(
    operator: ManagementClient, fields: dict[str, object]
) -> None:
    assert refusal(operator, "publish", **{"routing_key": "q", **fields}) == "bad-request"


def test_expiration_delay_copies_and_limits_count(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="a")
    operator.ask(
        "declare queue", name="b", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    publish(operator, "a", "both", headers={"CC": ["b"], "BCC": ["none"]})
    assert bodies(operator, "a") == bodies(operator, "b") == ["both"]
    (row,) = operator.items("peek", queue="a")
    assert row["headers"] == {"CC": ["b"]}
    assert refusal(operator, "publish", routing_key="b", payload="more") == "limit"
    publish(operator, "a", "short", expiration="0")
    publish(operator, "a", "late", headers={"x-delay": 3_600_000})
    assert bodies(operator, "a") == ["both"]
    assert refusal(operator, "publish", routing_key="a", properties={"expiration": "x"}) != ""
    operator.ask("set alarm", reason="stop")
    assert refusal(operator, "publish", routing_key="a", payload="x") == "limit"
    operator.ask("clear alarm")


@pytest.mark.parametrize(
    ("mode", "left", "dead", "redelivered"),
    [
        ("ack_requeue_true", ["1", "2", "3"], [], [True, True, False]),
        ("ack_requeue_false", ["3"], [], [False]),
        ("reject_requeue_true", ["1", "2", "3"], [], [True, True, False]),
        ("reject_requeue_false", ["3"], ["1", "2"], [False]),
    ],
)
def test_the_ack_modes_of_get(
    operator: ManagementClient, mode: str, left: list[str], dead: list[str], redelivered: list[bool]
) -> None:
    operator.ask("declare queue", name="dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    operator.ask("declare queue", name="q", arguments=letters)
    publish(operator, "q", "1", "2", "3", delivery_mode=2)
    rows, done = operator.listed("get", queue="q", count=2, ackmode=mode)
    assert [(row["body"], row["left"], row["redelivered"]) for row in rows] == [
        ("1", 2, False),
        ("2", 1, False),
    ]
    assert done == {"items": 2, "left": len(left)}
    seen = operator.items("peek", queue="q")
    assert [row["body"] for row in seen] == left
    assert [row["redelivered"] for row in seen] == redelivered
    assert bodies(operator, "dead") == dead
    assert operator.ask("show queue", name="q")["unacked"] == 0


def test_get_shows_so_much_of_a_body_and_refuses_what_basic_get_refuses(
    operator: ManagementClient,
) -> None:
    operator.ask("declare queue", name="q")
    publish(operator, "q", "abcdef")
    (row,) = operator.items("get", queue="q", truncate=3)
    assert (row["body"], row["bytes"], row["cut"]) == ("abc", 6, True)
    assert operator.listed("get", queue="q", count=5)[1] == {"items": 1, "left": 1}
    operator.ask("declare queue", name="log", arguments={"x-queue-type": "stream"})
    assert refusal(operator, "get", queue="log") != ""
    assert refusal(operator, "get", queue="none") == "not-found"
    assert refusal(operator, "get", queue="q", ackmode="no") == "bad-request"


def test_a_published_message_survives_a_kill(tmp_path: Path) -> None:
    served = Served(tmp_path).start()
    path = tmp_path / "data" / "management.sock"
    operator = ManagementClient(path)
    operator.ask("declare queue", name="q")
    publish(operator, "q", "kept", delivery_mode=2)
    served.kill()
    operator.close()
    served.start()
    operator = ManagementClient(path)
    assert bodies(operator, "q") == ["kept"]
    operator.close()
    assert served.stop() == 0


# --- As a user ------------------------------------------------------------------------------------


def test_messages_need_the_permissions_of_amqp(operator: ManagementClient) -> None:
    operator.ask("put user", name="ada", password="secret", tags="management")
    operator.ask("put permission", user="ada", configure="", write="^w", read="^r")
    topics = {"exchange": "wire", "write": "^ada[.]", "read": ""}
    operator.ask("put topic permission", user="ada", **topics)
    operator.ask("declare exchange", name="wire", type="topic")
    for name in ("rq", "wq"):
        operator.ask("declare queue", name=name)
        operator.ask("bind", source="wire", destination=name, routing_key="#")
    ada = operator.login("ada", "secret")
    assert ada.ask("publish", exchange="wire", routing_key="ada.x", payload="1")["routed"]
    with pytest.raises(OperationRefused, match="write access to topic 'eve"):
        ada.ask("publish", exchange="wire", routing_key="eve.x", payload="1")
    assert refusal(ada, "publish", routing_key="rq", payload="1") == "refused"
    assert ada.items("get", queue="rq")[0]["body"] == "1"
    assert refusal(ada, "get", queue="wq") == "refused"
    assert refusal(ada, "peek", queue="wq") == "refused"
    properties = {"user_id": "eve"}
    fields: dict[str, Any] = {"exchange": "wire", "routing_key": "ada.x"}
    assert refusal(ada, "publish", **fields, properties=properties) == "precondition"
    assert ada.ask("publish", **fields, properties={"user_id": "ada"})["routed"]
    job = {"from": "rq", "to": "wq"}
    assert ada.ask("copy messages", **job)["done"] == 2
    assert refusal(ada, "move messages", **{"from": "wq", "to": "rq"}) == "refused"
    assert refusal(ada, "delete messages", **{"from": "wq"}) == "refused"
    ada.close()


# --- Jobs --------------------------------------------------------------------------------------


def test_jobs_move_copy_delete_and_tell_beforehand(operator: ManagementClient) -> None:
    for name in ("a", "b"):
        operator.ask("declare queue", name=name)
    for number in range(20):
        publish(operator, "a", str(number), headers={"n": number})
    chosen = {"from": "a", "selector": "n < 5"}
    dry = operator.ask("move messages", to="b", dry_run=True, **chosen)
    assert (dry["state"], dry["done"]) == ("dry", 5)
    assert operator.ask("show queue", name="a")["ready"] == 20
    done = operator.ask("move messages", to="b", id="first", **chosen)
    assert (done["id"], done["state"], done["done"], done["ready"]) == ("first", "done", 5, 15)
    assert operator.ask("move messages", to="b", id="first", **chosen)["already"] is True
    assert bodies(operator, "b") == ["0", "1", "2", "3", "4"]
    assert operator.ask("copy messages", to="b", **{"from": "a"}, count=2)["done"] == 2
    assert operator.ask("delete messages", **{"from": "a"}, selector="n >= 10")["done"] == 10
    assert bodies(operator, "a") == ["5", "6", "7", "8", "9"]
    assert operator.ask("show job", id="first")["done"] == 5
    assert refusal(operator, "show job", id="none") == "not-found"
    assert refusal(operator, "move messages", to="none", **chosen) == "not-found"
    assert (
        refusal(operator, "move messages", to="b", **{**chosen, "selector": "(("}) == "bad-request"
    )


def test_dead_letters_go_back_to_where_they_came_from(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    operator.ask("declare queue", name="q", arguments=letters)
    publish(operator, "q", "1", "2")
    operator.items("get", queue="q", count=2, ackmode="reject_requeue_false")
    assert bodies(operator, "dead") == ["1", "2"]
    assert operator.ask("requeue messages", **{"from": "dead"})["done"] == 2
    assert bodies(operator, "q") == ["1", "2"]


def test_jobs_answer_by_the_names_of_earlier_versions(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="a")
    publish(operator, "a", "0")
    done = operator.ask("delete messages", **{"from": "a"}, id="named")
    assert done["done"] == 1
    for name in ("show job", "show errand", "cancel job", "cancel errand"):
        assert operator.ask(name, id="named")["done"] == 1
    assert operator.items("list errands") == operator.items("list jobs") == []
    assert refusal(operator, "show errand", id="none") == "not-found"


def test_a_job_goes_on_without_its_connection_and_is_cancelled_by_name(
    operator: ManagementClient, data: Path
) -> None:
    operator.ask("declare queue", name="a")
    publish(operator, "a", *map(str, range(50)))
    other = ManagementClient(data / "management.sock")
    begun = other.ask("delete messages", **{"from": "a"}, wait=False)
    other.close()
    assert begun["id"]
    ended = operator.ask("cancel job", id=begun["id"])
    assert ended["state"] in ("done", "failed")
    left = operator.ask("show queue", name="a")["ready"]
    assert left == (0 if ended["state"] == "done" else 50)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (1_700_000_000, "2023-11-14T22:13:20+00:00"),
        (1_700_000_000_123, 1_700_000_000_123),  # Milliseconds, by mistake.
        ((1 << 63) + 1, (1 << 63) + 1),
        ((1 << 64) - 1, (1 << 64) - 1),
    ],
)
def test_a_timestamp_that_no_datetime_holds_is_shown(
    operator: ManagementClient, seconds: int, shown: object
) -> None:
    operator.ask("declare queue", name="times")
    publish(operator, "times", "a", timestamp=seconds)
    assert operator.items("peek", queue="times")[0]["timestamp"] == shown
    assert operator.items("get", queue="times")[0]["timestamp"] == shown
