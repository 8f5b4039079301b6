# SPDX-License-Identifier: Apache-2.0
"""`headrace migrate` between two brokers of ours; tests/foreign has it from RabbitMQ."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli import main
from headrace.cli.migrate import migration
from headrace.client import ClientError, Message
from headrace.client.blocking import Connection, connect
from headrace.spec.tables import V0_10
from headrace.testing import LocalBroker
from support.brokers.broker_process import json_lines, until
from support.queue_contents import all_ready

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FULL = Message(
    b"\x00body",
    headers={"n": 1, "text": "x", "table": {"deep": [1, True]}},
    content_type="text/plain",
    content_encoding="utf-8",
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration=timedelta(hours=1),
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    app_id="a",
)


@pytest.fixture(scope="module")
def old() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def new() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


def migrate(old: LocalBroker, new: LocalBroker, path: Path, *words: str) -> Result:
    given = (
        *("migrate", old.url, "--to", new.url, "--messages-only", "--format", "json"),
        *("--state", str(path / "state"), *words),
    )
    return CliRunner().invoke(main, given)


def moved(old: LocalBroker, new: LocalBroker, path: Path, *words: str) -> dict[str, Any]:
    done = migrate(old, new, path, *words)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def declare(name: str, *brokers: LocalBroker, **arguments: Any) -> None:
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    for broker in brokers:
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue(name, arguments=given)


def fill(broker: LocalBroker, name: str, messages: list[Any]) -> None:
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.publish_many(messages, name)


def bodies(broker: LocalBroker, name: str) -> list[bytes]:
    with connect(broker.url) as connection, connection.channel() as channel:
        return [message.body for message in all_ready(channel, name)]


def test_all_is_moved_in_order_and_as_it_was(
    old: LocalBroker, new: LocalBroker, tmp_path: Path
) -> None:
    declare("orders", old, new)
    fill(old, "orders", [FULL, *(b"%d" % n for n in range(600))])
    told = moved(old, new, tmp_path, "--queue", "orders")
    assert (told["moved"], told["source_last"], told["target_last"]) == (601, 0, 601)
    with connect(new.url) as connection, connection.channel() as channel:
        first = channel.get("orders", no_ack=True)
        assert first is not None
        for field in migration.FIELDS:
            assert getattr(first, field) == getattr(FULL, field) or field == "timestamp"
    assert bodies(new, "orders") == [b"%d" % n for n in range(600)]
    assert moved(old, new, tmp_path, "--queue", "orders")["moved"] == 0


def test_origin_is_kept_in_headers(old: LocalBroker, new: LocalBroker, tmp_path: Path) -> None:
    declare("origin", old, new)
    with connect(old.url) as connection, connection.channel() as channel:
        channel.bind_queue("origin", "amq.topic", "a.#")
        channel.publish("x", "a.b", "amq.topic")
    moved(old, new, tmp_path, "--queue", "origin", "--origin")
    with connect(new.url) as connection, connection.channel() as channel:
        found = channel.get("origin", no_ack=True)
        assert found is not None
        assert found.headers == {
            "x-migrated-exchange": "amq.topic",
            "x-migrated-routing-key": "a.b",
        }


@pytest.mark.parametrize("at", ["before the publish", "before the ack"])
def test_interrupted_it_goes_on(
    old: LocalBroker, new: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Killed after some batches, before or after the confirms: nothing is lost, nothing twice."""
    name = f"cut {at}"
    declare(name, old, new)
    fill(old, name, [f"{n}" for n in range(1000)])
    whole = migration.publish
    count = 0

    async def cut(*words: Any) -> None:
        nonlocal count
        count += 1
        if count < 3:
            await whole(*words)
            return
        if at == "before the ack":
            await whole(*words)
        raise OSError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(migration, "publish", cut)
        done = migrate(old, new, tmp_path, "--queue", name)
        assert done.exit_code == 1
        assert "cut; run it again to continue" in done.stderr
    told = moved(old, new, tmp_path, "--queue", name)
    assert told["moved"] == 1000
    assert told["suppressed"] == (250 if at == "before the ack" else 0)
    assert told["repeated"] == 0
    assert bodies(new, name) == [b"%d" % n for n in range(1000)]


@pytest.mark.parametrize("alike", [False, True])
def test_when_in_doubt_nothing_is_lost(
    old: LocalBroker,
    new: LocalBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    alike: bool,
) -> None:
    """Another client published to the old queue meanwhile: the counts prove nothing."""
    name = f"doubt {alike}"
    texts = ["same" if alike else f"{n}" for n in range(450)]
    declare(name, old, new)
    fill(old, name, texts[:400])
    whole = migration.publish

    async def cut(*words: Any) -> None:
        await whole(*words)
        raise OSError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(migration, "publish", cut)
        assert migrate(old, new, tmp_path, "--queue", name).exit_code == 1
    fill(old, name, texts[400:])
    told = moved(old, new, tmp_path, "--queue", name)
    assert told["repeated"] == 250
    found = bodies(new, name)
    assert list(dict.fromkeys(found)) == list(dict.fromkeys(text.encode() for text in texts))
    assert len(found) == 700


def test_a_stream_is_copied_by_offset(
    old: LocalBroker, new: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare("log", old, new, x_queue_type="stream")
    fill(old, "log", [f"{n}" for n in range(700)])
    whole = migration.publish
    count = 0

    async def cut(*words: Any) -> None:
        nonlocal count
        count += 1
        await whole(*words)
        if count == 2:
            raise OSError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(migration, "publish", cut)
        assert migrate(old, new, tmp_path, "--stream", "log").exit_code == 1
    told = moved(old, new, tmp_path, "--stream", "log")
    assert told["target_last"] == 700
    with connect(new.url) as connection:
        found = [r.body for batch in connection.stream("log").read(0, 700) for r in batch]
    assert found == [b"%d" % n for n in range(700)]


def test_what_cannot_be_moved_is_said(old: LocalBroker, new: LocalBroker, tmp_path: Path) -> None:
    declare("only.old", old)
    fill(old, "only.old", ["x"])
    done = migrate(old, new, tmp_path, "--queue", "only.old", "--queue", "nowhere")
    assert done.exit_code == 1
    assert "the new broker has no queue 'only.old': import its definitions first" in done.stderr
    assert "no queue 'nowhere'" in done.stderr
    assert bodies(old, "only.old") == [b"x"]
    declare("full", old)
    declare("full", new, x_max_length=10, x_overflow="reject-publish")
    fill(old, "full", [f"{n}" for n in range(20)])
    done = migrate(old, new, tmp_path, "--queue", "full")
    assert done.exit_code == 1
    assert bodies(new, "full") + bodies(old, "full")[10:] == [b"%d" % n for n in range(20)]


def test_a_queue_that_loses_messages_is_told(
    old: LocalBroker, new: LocalBroker, tmp_path: Path
) -> None:
    declare("short", old)
    declare("short", new, x_max_length=5)
    fill(old, "short", [f"{n}" for n in range(20)])
    done = migrate(old, new, tmp_path, "--queue", "short")
    assert done.exit_code == 1
    assert "the new queue has 5 messages, not 20" in done.stdout


def test_names_of_other_users_need_the_tag_impersonator(tmp_path: Path) -> None:
    """A message that says who sent it is taken from those who may pose only, in every version."""
    data = tmp_path / "data"
    with LocalBroker(data, audit_log=tmp_path / "audit.log") as broker:
        for name, tags in (("ada", ()), ("carrier", ("--tag", "impersonator"))):
            words = ("user", "add", "--data", str(data), "--password", "p", *tags, name)
            assert CliRunner().invoke(main, words).exit_code == 0
            words = ("permission", "set", "--data", str(data), name, ".*", ".*", ".*")
            assert CliRunner().invoke(main, words).exit_code == 0
        message = Message(b"x", user_id="somebody")
        url = f"amqp://{{}}:p@127.0.0.1:{broker.port}/?version={{}}"
        until(lambda: can_log_in(url.format("carrier", "0-9-1")), "the users are there")
        with connect(url.format("carrier", "0-9-1")) as reader, reader.channel() as channel:
            channel.declare_queue("q")
            for version in ("0-8", "0-9", "0-9-1", "0-10"):
                with connect(url.format("carrier", version)) as connection:
                    publish(connection, message)
                found = channel.get("q", no_ack=True)
                assert found is not None
                assert found.user_id == "somebody"
                with connect(url.format("ada", version)) as connection:
                    with pytest.raises(ClientError, match=r"user_id property set|the user-id of"):
                        publish(connection, message)

    def refused() -> list[dict[str, Any]]:
        lines = json_lines(tmp_path / "audit.log")
        return [line for line in lines if line["what"] == "permission"]

    until(lambda: len(refused()) >= 4, "the audit log says so")
    assert [(line["who"], line["allowed"]) for line in refused()] == [("ada", False)] * 4


def publish(connection: Connection, message: Message) -> None:
    if connection.version is V0_10:
        with connection.session() as session:
            session.transfer(message, "q")
    else:
        with connection.channel() as channel:
            channel.publish(message, "q")


def can_log_in(url: str) -> bool:
    try:
        connect(url, reconnect=None).close()
    except ClientError:
        return False
    return True


def test_words_that_make_no_sense(tmp_path: Path) -> None:
    for words, text in (
        (("amqp://h/",), "give --definitions, or --messages-only"),
        (("amqp://h/", "--topology-only", "--messages-only"), "exclude each other"),
        (("http://h/", "--messages-only", "--queue", "q"), "must start with amqp://"),
    ):
        done = CliRunner().invoke(main, ["migrate", *words, "--state", str(tmp_path / "s")])
        assert done.exit_code != 0
        assert text in done.stderr
