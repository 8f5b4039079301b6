# SPDX-License-Identifier: Apache-2.0
"""Definitions in RabbitMQ's format: taken and given, by a broker that runs and by a directory."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import AuthenticationFailed, ConnectionClosed
from headrace.client.blocking import connect
from headrace.gateway.security.passwords import NO_PASSWORD
from headrace.management_socket import short_address
from headrace.model.arguments.aliases import QUEUE_ALIASES
from headrace.model.arguments.values import QUEUE_ARGUMENTS
from headrace.model.policy.policy import KEYS
from headrace.model.policy.unknown_arguments import DEAD_LETTERS
from headrace.server.definitions.document import DOCUMENT_BYTES_MAX, DocumentError, read_document
from headrace.server.definitions.rabbitmq import READERS, adapt
from headrace.store.catalog.users import UserDirectory
from headrace.testing import ChildBroker, LocalBroker
from support.brokers.broker_process import files_below, until
from support.command_line import run, works
from support.rabbitmq_hash import foreign_hash
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.model.policy.accounts import Account


def refused(*words: str | Path) -> str:
    done = run(*words)
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    return done.stderr.strip().splitlines()[-1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "definitions.json"


def everything() -> dict[str, Any]:
    """A file as `rabbitmqctl export_definitions` writes it."""
    return {
        "rabbit_version": "3.13.7",
        "rabbitmq_version": "3.13.7",
        "product_name": "RabbitMQ",
        "product_version": "3.13.7",
        "users": [
            {
                "name": "ada",
                "password_hash": foreign_hash("lovelace"),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": ["administrator"],
                "limits": {"max-connections": 7},
            },
            {
                "name": "bob",
                "password_hash": foreign_hash("builder", "sha512"),
                "hashing_algorithm": "rabbit_password_hashing_sha512",
                "tags": "management,monitoring",
            },
        ],
        "vhosts": [
            {"name": "/"},
            {
                "name": "shop",
                "description": "for sale",
                "tags": [],
                "default_queue_type": "undefined",
                "metadata": {"description": "for sale", "tags": []},
            },
        ],
        "permissions": [
            {"user": "ada", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"},
            {"user": "ada", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
        ],
        "topic_permissions": [
            {"user": "ada", "vhost": "shop", "exchange": "goods", "write": "^a", "read": ".*"}
        ],
        "parameters": [
            {
                "component": "operator_policy",
                "name": "guard",
                "vhost": "shop",
                "value": {
                    "apply-to": "queues",
                    "definition": {"max-length": 50},
                    "pattern": ".*",
                    "priority": 0,
                },
            },
            {
                "component": "vhost-limits",
                "name": "limits",
                "vhost": "shop",
                "value": {"max-queues": 10},
            },
            {
                "component": "federation-upstream",
                "name": "far",
                "vhost": "shop",
                "value": {"uri": "amqp://elsewhere"},
            },
        ],
        "global_parameters": [{"name": "cluster_name", "value": "rabbit@old"}],
        "policies": [
            {
                "vhost": "shop",
                "name": "short",
                "pattern": "^orders",
                "apply-to": "queues",
                "definition": {"max-length": 100, "ha-mode": "all"},
                "priority": 1,
            }
        ],
        "queues": [
            {
                "name": "orders",
                "vhost": "shop",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-queue-type": "quorum", "x-delivery-limit": 5},
            },
            {
                "name": "log",
                "vhost": "shop",
                "durable": True,
                "auto_delete": False,
                "type": "stream",
                "arguments": {"x-max-age": "7D"},
            },
            {
                "name": "jms",
                "vhost": "shop",
                "durable": True,
                "auto_delete": False,
                "arguments": {"x-queue-type": "x-jms-queue"},
            },
        ],
        "exchanges": [
            {
                "name": "goods",
                "vhost": "shop",
                "type": "topic",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {"alternate-exchange": "rest"},
            },
            {
                "name": "rest",
                "vhost": "shop",
                "type": "fanout",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            },
            {
                "name": "jms.topic",
                "vhost": "shop",
                "type": "x-jms-topic",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            },
        ],
        "bindings": [
            binding("goods", "orders", "a.#"),
            binding("goods", "log", "#"),
            binding("goods", "rest", "b.*", kind="exchange"),
            binding("jms.topic", "orders", ""),
        ],
    }


def binding(source: str, destination: str, key: str, kind: str = "queue") -> dict[str, Any]:
    return {
        "source": source,
        "vhost": "shop",
        "destination": destination,
        "destination_type": kind,
        "routing_key": key,
        "arguments": {},
    }


def write(file: Path, value: Any) -> Path:
    file.write_text(json.dumps(value))
    return file


def taken(data: Path, file: Path, *options: str) -> dict[str, Any]:
    words = ("definitions", "import", "--data", data, "--format", "json", *options, file)
    report: dict[str, Any] = json.loads(works(*words))  # type: ignore[arg-type]
    return report


def given(data: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(works("definitions", "export", "--data", data, *options))
    return found


MADE_OF_EVERYTHING = {
    "vhosts": {"there": 1, "made": 1},
    "users": {"made": 2},
    "permissions": {"made": 2},
    "topic_permissions": {"made": 1},
    "parameters": {"made": 2, "no equivalent": 1},
    "global_parameters": {"made": 1},
    "policies": {"made": 1},
    "exchanges": {"made": 2, "no equivalent": 1},
    "queues": {"made": 2, "no equivalent": 1},
    "bindings": {"made": 3, "no equivalent": 1},
}


def check_everything(broker: LocalBroker) -> None:
    """The definitions of a file are applied, and its users log in."""
    with connect(f"amqp://ada:lovelace@127.0.0.1:{broker.port}/shop") as connection:
        with connection.channel() as channel:
            channel.publish("x", "a.b", "goods")
            assert channel.get("orders").body == b"x"  # type: ignore[union-attr]
        assert connection.stream("log").last_offset() == 1


def test_a_running_broker_takes_all_of_a_file(data: Path, file: Path, broker: LocalBroker) -> None:
    write(file, everything())
    assert taken(data, file, "--dry-run")["counts"] == MADE_OF_EVERYTHING
    assert given(data)["queues"] == []
    report = taken(data, file)
    assert report["counts"] == MADE_OF_EVERYTHING
    said = {line["path"]: (line["outcome"], line["text"]) for line in report["lines"]}
    assert said["$.parameters[2]"][1] == "unknown parameter component 'federation-upstream'"
    assert said["$.queues[2]"] == ("no equivalent", "unknown queue type 'x-jms-queue'")
    assert said["$.bindings[3]"][1] == "exchange 'jms.topic' is left out"
    assert said["$.policies[0]"] == ("made", "without effect here: ha-mode")
    check_everything(broker)
    again = taken(data, file)
    assert all(not counts.get("made") for counts in again["counts"].values())


def test_a_stopped_directory_takes_the_same_and_keeps_it(data: Path, file: Path) -> None:
    write(file, everything())
    counts = {**MADE_OF_EVERYTHING, "vhosts": {"made": 2}}
    assert taken(data, file, "--dry-run")["counts"] == counts
    assert taken(data, file)["counts"] == counts
    with LocalBroker(data) as broker:
        check_everything(broker)
        running = given(data)
    vhosts = [
        {**vhost, "metadata": {**vhost["metadata"], "default_queue_type": "classic"}}
        for vhost in given(data)["vhosts"]
    ]  # The default type is a setting of the broker that runs.
    assert [{**vhost, "default_queue_type": "classic"} for vhost in vhosts] == running["vhosts"]
    stopped = given(data)
    assert {**stopped, "users": [], "vhosts": []} == {**running, "users": [], "vhosts": []}


def test_what_is_given_is_taken_elsewhere(data: Path, file: Path, tmp_path: Path) -> None:
    taken(data, write(file, everything()))
    first = given(data)
    assert [user["hashing_algorithm"] for user in first["users"]] == [
        "rabbit_password_hashing_sha256",
        "rabbit_password_hashing_sha512",
    ]
    other = tmp_path / "other"
    taken(other, write(file, first))
    assert given(other) == first
    one = given(data, "--vhost", "shop")
    assert "vhost" not in one["queues"][0]
    report = taken(other, write(file, one), "--vhost", "/")
    assert report["counts"]["queues"] == {"made": 2}


STREAM = {"x-queue-type": "stream"}
LVQ = {"qpid.last_value_queue": 1}
GROUPED = {"qpid.group_header_key": "g"}
LEVELS = {"qpid.priorities": 3}
DEAD = {"x-dead-letter-exchange": ""}
# What each argument of a queue needs beside it, and a value that it may have.
SAMPLES: dict[str, Any] = {
    "alternate-exchange": "amq.fanout",
    "alternateExchange": "amq.fanout",
    "x-alternate-exchange": "amq.fanout",
    "holdOnPublishEnabled": True,
    "qpid.LVQ_key": "z",
    "qpid.alert_count": 5,
    "qpid.alert_count_up": 5,
    "qpid.alert_repeat_gap": 5,
    "qpid.alert_size": 5,
    "qpid.alert_size_up": 5,
    "qpid.auto_delete_timeout": 500,
    "qpid.browse-only": True,
    "qpid.default-message-group": "d",
    "qpid.ensure_nondestructive_consumers": True,
    "qpid.exclusivity_policy": "LINK",
    "qpid.fairshare": 2,
    "qpid.flow_resume_count": 5,
    "qpid.flow_resume_size": 5,
    "qpid.flow_stop_count": 50,
    "qpid.flow_stop_size": 50,
    "qpid.group_header_key": "g",
    "qpid.last_value_queue": 1,
    "qpid.last_value_queue_key": "k",
    "qpid.last_value_queue_no_browse": 1,
    "qpid.lifetime-policy": "delete-if-empty",
    "qpid.lifetime_policy": "IN_USE",
    "qpid.max_count": "5",
    "qpid.max_size": 50,
    "qpid.policy_type": "ring",
    "qpid.priorities": 3,
    "qpid.queue_sort_key": "s",
    "qpid.shared_msg_group": 1,
    "x-cache-persistence": "memory",
    "x-cache-size": 10,
    "x-cache-ttl": 1000,
    "x-consumer-timeout": 60000,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "k",
    "x-dead-letter-strategy": "at-least-once",
    "x-deduplication-header": "id",
    "x-delayed-retry-max": 1000,
    "x-delayed-retry-min": 100,
    "x-delayed-retry-multiplier": 2,
    "x-delayed-retry-type": "all",
    "x-delivery-limit": -1,
    "x-expires": 500_000,
    "x-initial-cluster-size": 3,
    "x-max-age": "5D",
    "x-max-in-memory-bytes": 5,
    "x-max-in-memory-length": 5,
    "x-max-length": 5,
    "x-max-length-bytes": 50,
    "x-max-priority": 5,
    "x-message-deduplication": True,
    "x-message-ttl": 0,
    "x-overflow": "reject-publish-dlx",
    "x-qpid-capacity": 50,
    "x-qpid-dlq-enabled": True,
    "x-qpid-fairshare": 2,
    "x-qpid-flow-resume-capacity": 5,
    "x-qpid-maximum-delivery-count": 3,
    "x-qpid-maximum-message-age": 5,
    "x-qpid-maximum-message-count": 5,
    "x-qpid-maximum-message-size": 5,
    "x-qpid-maximum-queue-depth": 5,
    "x-qpid-minimum-alert-repeat-gap": 5,
    "x-qpid-priorities": 3,
    "x-queue-leader-locator": "balanced",
    "x-queue-mode": "lazy",
    "x-queue-type": "quorum",
    "x-queue-version": 2,
    "x-quorum-initial-group-size": 3,
    "x-quorum-target-group-size": 3,
    "x-single-active-consumer": True,
    "x-stream-max-segment-size-bytes": 1_000_000,
    "x-local-max-length-bytes": 10_000_000,
    "x-local-max-age": "7D",
    **{f"{prefix}fairshare-{n}": 2 for prefix in ("qpid.", "x-qpid-") for n in range(3)},
}
BESIDE = {
    "qpid.LVQ_key": LVQ,
    "qpid.default-message-group": GROUPED,
    "qpid.flow_resume_count": {"qpid.flow_stop_count": 50},
    "qpid.flow_resume_size": {"qpid.flow_stop_size": 50},
    "qpid.shared_msg_group": GROUPED,
    "x-cache-persistence": {"x-message-deduplication": True},
    "x-dead-letter-routing-key": DEAD,
    "x-dead-letter-strategy": DEAD,
    "x-max-age": STREAM,
    "x-qpid-flow-resume-capacity": {"x-qpid-capacity": 50},
    "x-stream-max-segment-size-bytes": STREAM,
    "x-local-max-length-bytes": STREAM,
    "x-local-max-age": STREAM,
    **{name: LEVELS for name in SAMPLES if "fairshare" in name},
}


def test_each_argument_of_a_queue_and_each_key_of_a_policy_comes_back(
    data: Path, file: Path, tmp_path: Path
) -> None:
    known = {*QUEUE_ARGUMENTS, *QUEUE_ALIASES, DEAD_LETTERS}
    assert {*SAMPLES} == {name for name in known if not name.endswith(tuple("3456789"))}
    asked = {f"q {name}": {name: SAMPLES[name], **BESIDE.get(name, {})} for name in SAMPLES}  # type: ignore[dict-item]
    queues = [
        {"name": name, "vhost": "/", "arguments": arguments} for name, arguments in asked.items()
    ]
    policies = [
        {
            "name": key,
            "vhost": "/",
            "pattern": "^$",
            "definition": {key: SAMPLES[key if key in SAMPLES else f"x-{key}"]},
        }
        for key in KEYS
    ]
    write(file, {"vhosts": [{"name": "/"}], "queues": queues, "policies": policies})
    counts = taken(data, file)["counts"]
    assert counts["queues"] == {"made": len(queues)}
    assert counts["policies"] == {"made": len(policies)}
    first = given(data)
    there = {queue["name"]: queue["arguments"] for queue in first["queues"]}
    assert there.keys() == {*asked, f"q {DEAD_LETTERS}_DLQ"}
    for name, arguments in asked.items():
        assert arguments.items() <= there[name].items()
    other = tmp_path / "other"
    counts = taken(other, write(file, first))["counts"]
    assert counts["queues"]["made"] >= len(queues)
    assert given(other) == first
    kept = {policy["name"]: policy["definition"] for policy in first["policies"]}
    assert kept == {policy["name"]: policy["definition"] for policy in policies}


def test_what_goes_with_a_connection_is_not_given(data: Path, broker: LocalBroker) -> None:
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("stays")
        for name, arguments in (
            ("goes", {"qpid.lifetime_policy": "DELETE_ON_CONNECTION_CLOSE"}),
            ("mine", {"qpid.exclusivity_policy": "CONNECTION"}),
        ):
            channel.declare_queue(name, arguments=arguments)
            channel.bind_queue(name, "amq.fanout", "")
        found = given(data)
    assert [queue["name"] for queue in found["queues"]] == ["stays"]
    assert found["bindings"] == []


def accounts_of(data: Path) -> Mapping[str, Account]:
    with contextlib.closing(UserDirectory(data)) as directory:
        return directory.snapshot().accounts


def test_a_hash_of_rabbitmq_is_replaced_at_the_first_login(
    data: Path, file: Path, broker: LocalBroker
) -> None:
    taken(data, write(file, everything()))
    url = f"amqp://{{}}@127.0.0.1:{broker.port}/shop"
    with pytest.raises((AuthenticationFailed, ConnectionClosed)):
        connect(url.format("ada:wrong"))
    before = accounts_of(data)
    connect(url.format("ada:lovelace")).close()
    after = accounts_of(data)
    assert before["ada"].password_hash.startswith("rabbit_sha256$")
    assert after["ada"].password_hash.startswith("$argon2id$")
    assert after["ada"].scram is not None
    assert after["bob"] == before["bob"]
    connect(url.format("ada:lovelace")).close()
    users = {user["name"]: user for user in given(data)["users"]}
    assert users["ada"]["hashing_algorithm"] == "headrace_argon2id"
    users = {user["name"]: user for user in given(data, "--for", "rabbitmq")["users"]}
    assert users["ada"]["password_hash"] == ""
    assert "hashing_algorithm" not in users["ada"]


def test_our_own_hashes_come_back(data: Path, file: Path, tmp_path: Path) -> None:
    works("user", "add", "--data", data, "--password", "hopper", "grace")
    found = given(data)
    other = tmp_path / "other"
    taken(other, write(file, found))
    assert accounts_of(other) == accounts_of(data)


def with_password(password: str, **fields: Any) -> dict[str, Any]:
    user = {"name": "svc", "password": password, "tags": ["monitoring"], **fields}
    rights = {"user": "svc", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    return {"vhosts": [{"name": "/"}], "users": [user], "permissions": [rights]}


@pytest.mark.parametrize("runs", [True, False])
def test_a_password_in_a_file_is_hashed(data: Path, file: Path, runs: bool) -> None:
    with LocalBroker(data) if runs else contextlib.nullcontext():
        write(file, with_password("secret"))
        assert taken(data, file, "--dry-run")["counts"]["users"] == {"made": 1}
        assert taken(data, file)["counts"]["users"] == {"made": 1}
        before = accounts_of(data)["svc"]
        assert before.password_hash.startswith("$argon2id$")
        assert before.scram is not None
        assert before.tags == ("monitoring",)
        assert taken(data, file)["counts"]["users"] == {"there": 1}
        assert accounts_of(data)["svc"] == before
        assert taken(data, write(file, with_password("other")))["counts"]["users"] == {"changed": 1}
        text = refused(
            "definitions", "import", "--data", data, write(file, with_password("p" * 5000))
        )
        assert "$.users[0].password: a password may not be longer than 4096 bytes" in text
        hashed = with_password("other", password_hash=foreign_hash("else"))
        text = refused("definitions", "import", "--data", data, write(file, hashed))
        assert "$.users[0].password: 'password' and 'password_hash' exclude each other" in text
        taken(data, write(file, with_password("", name="none")))
        assert accounts_of(data)["none"].password_hash == NO_PASSWORD
    with LocalBroker(data) as broker:
        connect(f"amqp://svc:other@127.0.0.1:{broker.port}").close()


def test_a_queue_keeps_its_type_whatever_the_default_is(
    data: Path, file: Path, tmp_path: Path, broker: LocalBroker
) -> None:
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("old", durable=True)
    works("vhost", "set", "/", "--default-queue-type", "quorum", "--data", data)
    works("definitions", "export", "--data", data, file)
    (queue,) = json.loads(file.read_text())["queues"]
    assert (queue["type"], queue["arguments"]) == ("classic", {})
    other, again = tmp_path / "other", tmp_path / "again.json"
    works("definitions", "import", "--data", other, file)
    works("definitions", "export", "--data", other, again)
    assert json.loads(again.read_text())["queues"][0]["type"] == "classic"
    done = json.loads(works("definitions", "import", "--format", "json", "--data", other, file))
    assert done["counts"]["queues"] == {"there": 1}
    del queue["type"]  # Then it is declared as a client would.
    file.write_text(json.dumps({"vhosts": [{"name": "/"}], "queues": [{**queue, "name": "new"}]}))
    works("definitions", "import", "--data", other, file)
    works("definitions", "export", "--data", other, again)
    assert [one["type"] for one in json.loads(again.read_text())["queues"]] == ["quorum", "classic"]


def test_the_default_type_of_a_virtual_host_is_the_one_it_says(
    data: Path, file: Path, tmp_path: Path
) -> None:
    """The type of the broker is that of virtual hosts that say none; an export has it as well."""
    vhosts = [
        {"name": "says", "default_queue_type": "classic"},
        {"name": "metadata", "metadata": {"default_queue_type": "rabbit_classic_queue"}},
        {"name": "unsaid", "default_queue_type": "undefined", "description": "a"},
        {"name": "empty", "default_queue_type": ""},
    ]
    expected = {"says": "classic", "metadata": "classic", "unsaid": "quorum", "empty": "quorum"}
    with LocalBroker(data, default_queue_type="quorum") as broker:
        everywhere = [
            {"user": "guest", "vhost": name, "configure": ".*", "write": ".*", "read": ".*"}
            for name in expected
        ]
        write(file, {"vhosts": vhosts, "permissions": everywhere})
        assert taken(data, file)["counts"]["vhosts"] == {"made": 4}
        for name in expected:
            with connect(broker.url_of(vhost=name)) as one, one.channel() as channel:
                channel.declare_queue("q", durable=True)
        first = given(data)
    kinds = {queue["vhost"]: queue["type"] for queue in first["queues"]}
    assert kinds == expected
    found = {vhost["name"]: vhost["metadata"]["default_queue_type"] for vhost in first["vhosts"]}
    assert found == {**expected, "/": "quorum"}
    other = tmp_path / "other"
    taken(other, write(file, first))
    assert given(other)["vhosts"] == first["vhosts"]
    unsaid = {vhost["name"]: vhost for vhost in given(data)["vhosts"]}["unsaid"]
    assert "default_queue_type" not in unsaid  # It is a setting of a broker that runs.
    with LocalBroker(data):
        write(file, {"vhosts": [{"name": "unsaid", "description": "", "tags": []}]})
        assert taken(data, file)["counts"]["vhosts"] == {"changed": 1}
        assert {vhost["name"]: vhost for vhost in given(data)["vhosts"]}["unsaid"][
            "description"
        ] == ""
        write(file, {"vhosts": [{"name": "says", "default_queue_type": "x-jms-queue"}]})
        (line,) = taken(data, file)["lines"]
        assert line["outcome"] == "in part"
        assert line["text"] == "unknown queue type 'x-jms-queue': the default type stays as it is"


TIMES: dict[str, Any] = {
    "at": datetime(2026, 1, 2, tzinfo=UTC),
    "price": Decimal("1.50"),
    "raw": b"\xff\x00",
}
BOUND: dict[str, dict[str, Any]] = {"a": TIMES, "b": {"l": [TIMES]}, "c": {"n": 1.5}}


def test_arguments_that_json_does_not_have_come_back(
    data: Path, file: Path, tmp_path: Path
) -> None:
    with LocalBroker(data) as broker, connect(broker.url) as connection:
        with connection.channel() as channel:
            channel.declare_queue("q", durable=True)
            for key, arguments in BOUND.items():
                channel.bind_queue("q", "amq.headers", key, arguments=arguments)
        first = given(data)
    bindings = {binding["routing_key"]: binding for binding in first["bindings"]}
    assert bindings["a"]["arguments"] == {
        "at": "2026-01-02 00:00:00+00:00",
        "price": "1.50",
        "raw": "\\xff\x00",
    }
    assert "headrace_arguments" not in bindings["c"]
    other = tmp_path / "other"
    with LocalBroker(other) as broker, connect(broker.url) as connection:
        taken(other, write(file, first))
        assert taken(other, file)["counts"]["bindings"] == {"there": 3}
        assert given(other)["bindings"] == first["bindings"]
        with connection.channel() as channel:
            channel.unbind_queue("q", "amq.headers", "a", arguments=TIMES)
        left = given(other)["bindings"]
        assert [binding["routing_key"] for binding in left] == ["b", "c"]
        bindings["a"]["arguments"] = {"at": "later"}  # By hand: it counts.
        taken(other, write(file, {**first, "bindings": [bindings["a"]]}))
        assert {"at": "later"} in [one["arguments"] for one in given(other)["bindings"]]
        for text in ("!", "AAAA", "AAAABQ=="):
            bindings["a"]["headrace_arguments"] = text
            write(file, {**first, "bindings": [bindings["a"]]})
            said = refused("definitions", "import", "--data", other, file)
            assert "headrace_arguments: this is not the base64 of a field table" in said
    for_rabbitmq = given(data, "--for", "rabbitmq")["bindings"]
    assert not any("headrace_arguments" in binding for binding in for_rabbitmq)


def test_objects_as_erlang_writes_them(data: Path, file: Path) -> None:
    """`rabbitmqctl export_definitions` of 3.10 writes some as lists of pairs."""
    value = {"pattern": "^x", "definition": [["max-length", 10]], "priority": 0}
    guard = {"component": "operator_policy", "vhost": "/", "name": "guard", "value": value}
    file.write_text(json.dumps({"vhosts": [{"name": "/"}], "parameters": [guard]}))
    works("definitions", "import", "--data", data, file)
    listed = works("operator-policy", "list", "--data", data, "--format", "json")
    assert json.loads(listed)["definition"] == {"max-length": 10}
    value["definition"] = [["max-length", 10], ["max-length", 20]]
    file.write_text(json.dumps({"parameters": [guard]}))
    assert "has no definition" in refused("definitions", "import", "--data", data, file)


def test_a_dry_run_makes_no_directory(data: Path, file: Path) -> None:
    file.write_text(json.dumps({"vhosts": [{"name": "/"}]}))
    assert "vhosts: 1 created" in works("definitions", "import", "--dry-run", "--data", data, file)
    assert "has no data of a broker" in refused("definitions", "export", "--data", data)
    assert not data.exists()


def test_what_rabbitmq_refuses_is_left_out_and_named() -> None:
    """tests/foreign takes such a file to RabbitMQ; here is what differs by version."""
    queues = [
        {"name": f"q{n}", "vhost": "/", "type": "classic", "arguments": {"x-delivery-limit": 1}}
        for n in range(7)
    ]
    strict = {"x-queue-type": "quorum", "x-overflow": "reject-publish-dlx", "x-max-priority": 3}
    queues.append({"name": "s", "vhost": "/", "type": "quorum", "arguments": strict})
    hashed = {"name": "h", "vhost": "/", "type": "x-consistent-hash", "arguments": {}}
    binding = {"source": "h", "vhost": "/", "destination": "s", "destination_type": "queue"}
    policy = {"name": "p", "vhost": "/", "apply-to": "streams", "definition": {"max-age": "1D"}}
    limits = {
        "component": "vhost-limits",
        "name": "limits",
        "vhost": "/",
        "value": {"max-queues": 1},
    }
    rate = {**limits, "vhost": "v", "value": {"max-message-rate": 1}}
    sections = {
        "queues": queues,
        "exchanges": [hashed],
        "bindings": [{**binding, "arguments": {"x-apache-selector": "a = 1"}}],
        "policies": [policy],
        "parameters": [limits, rate],
    }
    now, said = adapt(sections, READERS["rabbitmq"])
    assert (now["exchanges"], now["policies"]) == ([hashed], [policy])
    assert now["parameters"] == [limits]
    assert now["bindings"] == sections["bindings"]
    assert now["queues"][-1]["arguments"] == {"x-queue-type": "quorum"}
    assert sorted(said) == [
        "left out: max-message-rate of vhosts: v",
        "left out: x-delivery-limit of classic queues: q0, q1, q2, q3, q4 and 2 more",
        "left out: x-max-priority of quorum queues: s",
        "left out: x-overflow reject-publish-dlx of quorum queues: s",
        "needs the plugin rabbitmq_consistent_hash_exchange there: h",
        "without effect there: x-apache-selector of bindings: h -> s",
    ]
    before, said = adapt(sections, READERS["rabbitmq-3.10"])
    assert before["exchanges"] == before["bindings"] == before["policies"] == []
    assert "left out: bindings of exchanges that are left out: h -> s" in said


def test_what_differs_stays_and_is_named(data: Path, file: Path, broker: LocalBroker) -> None:
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("q", durable=True, arguments={"x-max-length": 5})
        channel.declare_exchange("x", "direct", durable=True)
    value = {
        "queues": [{"name": "q", "vhost": "/", "arguments": {"x-max-length": 6}}],
        "exchanges": [{"name": "x", "vhost": "/", "type": "topic"}],
    }
    refusal = refused("definitions", "import", "--data", data, "--strict", write(file, value))
    assert "$.exchanges[0]: different: inequivalent arg 'type'" in refusal
    taken(data, file, "--known")
    shovel = {"component": "shovel", "vhost": "/", "name": "s", "value": {}}
    write(file, {**value, "parameters": [shovel]})
    refusal = refused("definitions", "import", "--data", data, "--known", file)
    assert "$.parameters[0]: no equivalent: " in refusal
    write(file, value)
    report = taken(data, file)
    assert report["counts"]["queues"] == report["counts"]["exchanges"] == {"different": 1}
    assert given(data)["queues"][0]["arguments"] == {"x-max-length": 5}


def test_policies_and_users_are_changed(data: Path, file: Path, broker: LocalBroker) -> None:
    value = everything()
    taken(data, write(file, value))
    value["policies"][0]["definition"]["max-length"] = 10
    value["users"][0]["tags"] = []
    counts = taken(data, write(file, value))["counts"]
    assert counts["policies"] == {"changed": 1}
    assert counts["users"] == {"changed": 1, "there": 1}


def test_what_does_not_last_is_for_running_brokers(data: Path, file: Path) -> None:
    value = {"queues": [{"name": "q", "vhost": "/", "durable": False}], "vhosts": [{"name": "/"}]}
    assert taken(data, write(file, value))["counts"]["queues"] == {"no equivalent": 1}
    with LocalBroker(data):
        assert taken(data, file)["counts"]["queues"] == {"made": 1}


def test_a_directory_in_use_is_left_alone(data: Path, file: Path) -> None:
    with LocalBroker(data, management_socket="none"):
        text = refused("definitions", "import", "--data", data, write(file, everything()))
        assert "is in use by another broker" in text


def test_a_killed_broker_left_its_socket(data: Path, file: Path) -> None:
    child = ChildBroker(data).start()
    child.kill()
    assert (data / "management.sock").exists()
    taken(data, write(file, everything()))
    with LocalBroker(data) as broker:
        check_everything(broker)


def test_elements_that_a_file_repeats(data: Path, file: Path, broker: LocalBroker) -> None:
    """An element that agrees with one before changes nothing; one that was left out stays out."""
    value = everything()
    sections = [name for name in MADE_OF_EVERYTHING if name in value]
    for section in sections:
        value[section] += [dict(reversed(element.items())) for element in value[section]]
    counts = {
        section: {**outcomes, "there": outcomes.get("there", 0) + outcomes["made"]}
        for section, outcomes in MADE_OF_EVERYTHING.items()
    }
    counts["vhosts"]["there"] += 1  # The one that exists is there twice.
    for section in ("parameters", "exchanges", "queues", "bindings"):
        counts[section]["no equivalent"] *= 2
    report = taken(data, write(file, value))
    assert report["counts"] == counts
    said = {line["path"]: (line["name"], line["text"]) for line in report["lines"]}
    assert said["$.queues[5]"] == ("jms", "unknown queue type 'x-jms-queue'")
    check_everything(broker)


def test_a_file_is_taken_again_at_the_limit_of_all_weights(
    data: Path, file: Path, broker: LocalBroker
) -> None:
    weights = range(934, 1001)  # In all 64,789 of 65,536; none of them fits once more.
    value = {
        "vhosts": [{"name": "shop"}],
        "queues": [{"name": "q", "vhost": "shop", "durable": True}],
        "exchanges": [{"name": "h", "vhost": "shop", "type": "x-consistent-hash", "durable": True}],
        "bindings": [binding("h", "q", str(weight)) for weight in weights],
    }
    assert taken(data, write(file, value))["counts"]["bindings"] == {"made": len(weights)}
    assert taken(data, file)["counts"]["bindings"] == {"there": len(weights)}


HASH = "rabbit_password_hashing_md5"
MD5 = {"password_hash": "wS4AT3B4Z5RpWlFn1FA30osf2C8="}  # Of four bytes of salt.


def test_the_rest_is_taken_where_a_part_has_no_equivalent(
    data: Path, file: Path, broker: LocalBroker
) -> None:
    """A user without a password, a policy less, a permission that allows less; all are reported."""
    value = everything()
    value["users"] = [
        {**value["users"][0], **MD5, "hashing_algorithm": HASH},
        {"name": "old", **MD5},
        {**value["users"][1], "hashing_algorithm": "my_own_hashing"},
    ]
    (policy,) = value["policies"]
    patterns = ["a(?<=a)b", "a(?!b)", r"(a)\1", "a++"]
    value["policies"] += [
        {**policy, "name": f"p{n}", "pattern": pattern} for n, pattern in enumerate(patterns)
    ]
    value["parameters"][0]["value"]["pattern"] = "(?>a)"
    value["permissions"][0]["write"] = "^(?!amq)"
    value["topic_permissions"][0]["read"] = "(?=a)"
    write(file, value)
    dry = taken(data, file, "--dry-run")
    report = taken(data, file)
    assert (
        report["counts"]
        == dry["counts"]
        == {
            **MADE_OF_EVERYTHING,
            "users": {"in part": 3},
            "policies": {"made": 1, "no equivalent": 4},
            "parameters": {"made": 1, "no equivalent": 2},
            "permissions": {"made": 1, "in part": 1},
            "topic_permissions": {"in part": 1},
        }
    )
    said = {line["path"]: line["text"] for line in report["lines"]}
    assert said == {line["path"]: line["text"] for line in dry["lines"]}
    for n, name in enumerate((HASH, HASH, "my_own_hashing")):
        assert said[f"$.users[{n}]"] == f"unknown password hash '{name}': the user has no password"
    for n, pattern in enumerate(patterns, 1):
        assert f"pattern '{pattern}' is not a valid regular expression" in said[f"$.policies[{n}]"]
    assert said["$.permissions[0]"].endswith("(?!; write matches nothing")
    assert said["$.topic_permissions[0]"].endswith("(?=; read matches nothing")
    found = given(data)
    assert [user["password_hash"] for user in found["users"] if user["name"] != "guest"] == [""] * 3
    assert [policy["name"] for policy in found["policies"]] == ["short"]
    rights = next(
        right
        for right in found["permissions"]
        if right["vhost"] == "shop" and right["user"] == "ada"
    )
    assert (rights["configure"], rights["write"], rights["read"]) == (".*", "", ".*")
    assert (found["topic_permissions"][0]["write"], found["topic_permissions"][0]["read"]) == (
        "^a",
        "",
    )
    for option in ("--strict", "--known"):
        text = refused("definitions", "import", "--data", data, option, file)
        assert "$.users[0]: in part: unknown password hash" in text


def test_a_user_keeps_the_password_that_a_file_cannot_give(
    data: Path, file: Path, broker: LocalBroker
) -> None:
    works("user", "add", "--data", data, "--password", "hopper", "grace")
    before = accounts_of(data)["grace"]
    user = {"name": "grace", **MD5, "hashing_algorithm": HASH, "tags": ["monitoring"]}
    report = taken(data, write(file, {"users": [user]}))
    assert (
        report["lines"][0]["text"] == f"unknown password hash '{HASH}': the user keeps its password"
    )
    after = accounts_of(data)["grace"]
    assert (after.password_hash, after.scram) == (before.password_hash, before.scram)
    assert after.tags == ("monitoring",)


# --- Hostile files -------------------------------------------------------------------------------


def altered(section: str, **fields: Any) -> dict[str, Any]:
    """Everything, with other fields of the first element of a section."""
    value = everything()
    value[section][0] = {**value[section][0], **fields}
    return value


def doubled(section: str, **fields: Any) -> dict[str, Any]:
    """Everything, with the first element of a section once more, with other fields."""
    value = everything()
    value[section].append({**value[section][0], **fields})
    return value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


WRONG: list[tuple[Any, str]] = [
    ([], "$: definitions must be an object, not a list"),
    ({"color": "red"}, "$: it has no field of definitions"),
    ({"queues": {}}, "$.queues: a list is needed, not an object"),
    ({"queues": [7]}, "$.queues[0]: an object is needed, not a number"),
    (altered("queues", name=7), "$.queues[0].name: a string is needed, not a number"),
    (altered("queues", name=None), "$.queues[0].name: the field is missing"),
    (altered("queues", name=""), "$.queues[0].name: a queue must have a name"),
    (
        altered("queues", name="q" * 256),
        "$.queues[0].name: a string of at most 255 bytes is needed",
    ),
    (
        altered("queues", name="ä" * 128),
        "$.queues[0].name: a string of at most 255 bytes is needed",
    ),
    (
        altered("queues", name="\ud800"),
        "$.queues[0].name: half of a surrogate pair is not a character",
    ),
    (
        altered("queues", durable="yes"),
        "$.queues[0].durable: true or false is needed, not a string",
    ),
    (altered("queues", durable=False), "$.queues[0]: a queue of type quorum is durable, and stays"),
    (altered("queues", arguments=[1]), "$.queues[0].arguments: an object is needed, not a list"),
    (
        altered("queues", arguments={"x-max-length": 1 << 64}),
        "$.queues[0].arguments.x-max-length: a whole number may have at most 64 bits",
    ),
    (
        altered("queues", arguments={"x-max-length": "many"}),
        "$.queues[0]: invalid arg 'x-max-length' for queue 'orders' in vhost 'shop'",
    ),
    (
        altered("queues", arguments={"a": nested(40)}),
        "lists and objects are nested more than 32 deep",
    ),
    (altered("queues", vhost="away"), "$.queues[0].vhost: there is no virtual host 'away'"),
    (doubled("vhosts", description="x"), "$.vhosts[2].name: another virtual host of that name"),
    (doubled("users", tags=[]), "$.users[2].name: another user of that name is at $.users[0]"),
    (doubled("permissions", read=""), "$.permissions[2].user: another permission of that name"),
    (doubled("policies", priority=7), "$.policies[1].name: another policy of that name"),
    (doubled("exchanges", type="direct"), "$.exchanges[3].name: another exchange of that name"),
    (
        doubled("queues", arguments={}),
        "$.queues[3].name: another queue of that name is at $.queues[0]",
    ),
    (altered("users", name="a\nb"), "$.users[0].name: the name of a user may not contain control"),
    (altered("users", password_hash="!!"), "$.users[0].password_hash: not valid base64"),
    (altered("users", password_hash="AAAA"), "has 36 bytes with its salt, not 3"),
    (altered("users", tags=["a b"]), "$.users[0].tags[0]: a tag must be one word"),
    (altered("users", limits={"max-x": 1}), "$.users[0]: unknown limit 'max-x'"),
    (altered("permissions", user="eve"), "$.permissions[0].user: there is no user 'eve'"),
    (
        altered("permissions", write="("),
        "$.permissions[0]: write '(' is not a valid regular expression",
    ),
    (altered("permissions", read="(a{1000}){1000}"), "is not a valid regular expression"),
    (altered("policies", pattern="(a{999}){999}"), "$.policies[0]:"),
    (altered("policies", definition={}), "$.policies[0]: policy 'short' has no definition"),
    (
        altered(
            "policies",
            definition={"dead-letter-strategy": "at-least-once", "overflow": "drop-head"},
        ),
        "$.policies[0]: policy 'short': at-least-once dead-lettering contradicts overflow",
    ),
    (
        altered("bindings", destination="gone"),
        "$.bindings[0].destination: there is no queue 'gone'",
    ),
    (altered("bindings", source="gone"), "$.bindings[0].source: there is no exchange 'gone'"),
    (altered("bindings", source=""), "$.bindings[0].source: nothing can be bound to the default"),
    (
        altered("bindings", destination_type="thing"),
        "$.bindings[0].destination_type: expected queue or exchange, not 'thing'",
    ),
    (
        altered("parameters", component="vhost-limits", name="limits", value={"max-queues": 1}),
        "$.parameters[1].name: another vhost-limits of that name is at $.parameters[0]",
    ),
]
TEXTS: list[tuple[bytes, str]] = [
    (b"", "$: this is not valid JSON"),
    (b"\xff\xfe", "$: byte 0 is not valid UTF-8"),
    (b'{"queues": [', "$: this is not valid JSON: Expecting value at line 1, column 13"),
    (b'{"queues": [], "queues": []}', '$: the name "queues" occurs twice'),
    (
        b'{"queues": [{"name": "q", "name": "r"}]}',
        '$.queues[0]: the name "name" occurs twice',
    ),
    (b'{"queues": [{"name": NaN}]}', "$: this is not valid JSON: NaN is not a JSON number"),
    (
        b'{"queues": [{"name": "q", "arguments": {"x": -1e400}}]}',
        "$: this is not valid JSON: the number -1e400 is larger than a double can be",
    ),
    (b'{"queues": ' + b"[" * 200_000, "$: lists and objects are nested too deeply"),
    (b'{"queues": [' + b"9" * 5000 + b"]}", "$: this is not valid JSON: Exceeds the limit"),
    (
        b'{"queues": [{"name": "' + b"q" * 300_000 + b'"}]}',
        "$.queues[0]: an element may have at most 262144 characters",
    ),
]


def test_hostile_files_change_nothing(data: Path, file: Path, broker: LocalBroker) -> None:
    """Each is refused in one sentence with its place; broker and directory stay as they were."""
    before = given(data)
    texts = [(json.dumps(value).encode(), wanted) for value, wanted in WRONG]
    for octets, wanted in texts + TEXTS:
        file.write_bytes(octets)
        text = refused("definitions", "import", "--data", data, file)
        assert wanted in text
        assert text.endswith("nothing was changed")
    assert given(data) == before
    broker.stop()
    before = given(data)  # Without the default type of queues, a setting of a broker.
    for octets, wanted in texts:
        file.write_bytes(octets)
        assert wanted in refused("definitions", "import", "--data", data, file)
    assert given(data) == before


def talk(data: Path, *lines: bytes) -> dict[str, Any]:
    """Send lines to the management socket as they are; return the first answer."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(PATIENCE_S)
        with short_address(data / "management.sock") as address:
            end.connect(address)
        end.sendall(b"".join(line + b"\n" for line in lines))
        end.shutdown(socket.SHUT_WR)
        with end.makefile("rb") as answers:
            found: dict[str, Any] = json.loads(answers.readline())
            return found


TWO_LINES = (
    b'{"section": "queues", "first": 0, "values": [{"name": "q", "vhost": "/"}]}\n'
    b'{"section": "users", "first": 0, "values": [{"name": "u"}]}'
)
LINES: list[tuple[bytes, str]] = [
    (
        b'{"section": "queues", "first": 0, "values": [], "first": 1}',
        'each line must be a JSON object: the name "first" occurs twice',
    ),
    (
        b'{"section": "queues", "first": 1e400, "values": []}',
        "each line must be a JSON object: the number 1e400 is larger than a double can be",
    ),
    (b'{"section": "color", "first": 0, "values": []}', "a line must have a section and values"),
    (b'{"section": "queues", "first": 0, "values": {}}', "a line must have a section and values"),
    (b'{"section": "queues", "values": []}', "a line must have the index of its first value"),
    (b'{"section": "queues", "first": true, "values": []}', "the index of its first value"),
    (b'{"section": "queues", "first": 7, "values": [8]}', "$.queues[7]: an object is needed"),
    (
        b'{"section": "queues", "first": 0, "values": ' + b"[" * 90_000,
        "each line must be a JSON object",
    ),
    (
        TWO_LINES,
        "$.users[0]: the sections are not in order",
    ),
]


def test_lines_that_no_command_of_ours_sends(data: Path, broker: LocalBroker) -> None:
    before = given(data)
    for line, wanted in LINES:
        answer = talk(data, b'{"do": "import definitions"}', line, b'{"end": true}')
        assert wanted in answer["error"]
    assert "done" in talk(data, b'{"do": "import definitions"}', b'{"end": true}')
    assert given(data) == before


def test_killed_in_the_middle_it_is_taken_again(data: Path, file: Path) -> None:
    """Objects of an interrupted import are complete; a second import makes the rest."""
    many = range(3000)
    value = {
        "exchanges": [{"name": "x", "vhost": "/", "type": "direct"}],
        "queues": [{"name": f"q{n}", "vhost": "/"} for n in many],
        "bindings": [
            {"source": "x", "vhost": "/", "destination": f"q{n}", "routing_key": f"{n}"}
            for n in many
        ],
    }
    write(file, value)
    child = ChildBroker(data).start()
    words = ["definitions", "import", "--data", str(data), str(file)]
    client = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *words], stderr=subprocess.PIPE
    )

    def begun() -> bool:
        """Return True if some objects are made; after the command ended this is not seen."""
        journal = files_below(data, ".segment")
        return client.poll() is not None or any(b"q1000" in octets for _, octets in journal)

    until(begun, "some are made")
    child.kill()
    client.communicate()
    child.start()
    counts = taken(data, file)["counts"]
    assert counts["queues"].get("there", 0) + counts["queues"].get("made", 0) == len(many)
    assert counts["queues"]["there"] > 0
    child.restart()
    assert taken(data, file)["counts"]["bindings"] == {"there": len(many)}
    child.stop()


def test_size_is_bounded() -> None:
    with pytest.raises(DocumentError, match=f"more than {DOCUMENT_BYTES_MAX} bytes"):
        read_document(bytes(DOCUMENT_BYTES_MAX + 1))


def test_more_memory_than_a_limit_allows(data: Path, file: Path, broker: LocalBroker) -> None:
    value = everything()
    limits = {"component": "vhost-limits", "name": "limits", "vhost": "shop"}
    value["parameters"] = [{**limits, "value": {"max-definitions-size": 30_000}}]
    value["queues"] += [{"name": f"q{n}", "vhost": "shop"} for n in range(40)]
    text = refused("definitions", "import", "--data", data, write(file, value))
    assert "the definitions of virtual host 'shop' may not hold so much memory" in text
    assert "(max-definitions-size)" in text
    assert given(data)["queues"] == []


def test_more_queues_than_a_limit_allows(data: Path, file: Path, broker: LocalBroker) -> None:
    value = everything()
    value["queues"] += [{"name": f"q{n}", "vhost": "shop"} for n in range(9)]
    text = refused("definitions", "import", "--data", data, write(file, value))
    assert (
        "$.queues[11]: virtual host 'shop' would have more queues than its limit max-queues" in text
    )
    assert given(data)["queues"] == []
