# SPDX-License-Identifier: Apache-2.0
"""Streams with their readers, and the audit log by user and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jsonschema
import pytest

from headrace.client import blocking
from headrace.console.api.streams import STREAM_DETAILS_SCHEMA, STREAM_SCHEMA
from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "a-password-of-tests"
STREAMS = "/api/headrace/streams"
AUDIT = "/api/headrace/logs/audit"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with an audit log, a stream of three records, and a queue."""
    data = tmp_path_factory.mktemp("data")
    with LocalConsole(data, broker={"audit_log": str(data / "audit.log")}) as running:
        link: Any = running.console.link  # type: ignore[union-attr]
        arguments = {"x-queue-type": "stream", "x-max-length-bytes": 1 << 20}
        running.run(link.ask("declare queue", name="log", arguments=arguments))
        running.run(link.ask("declare queue", name="plain"))
        running.run(link.ask("put vhost", name="other"))
        running.run(link.ask("put user", name="ada", password=SECRET, tags=["management"]))
        running.run(
            link.ask("put permission", user="ada", vhost="other", configure=".*", write="", read="")
        )
        for _ in range(3):
            running.run(link.ask("publish", exchange="", routing_key="log", payload="m"))
        yield running


def test_a_stream_tells_offsets_limits_and_consumers(console: LocalConsole) -> None:
    (row,) = console.get(STREAMS)
    assert console.get(f"{STREAMS}/%2F") == [row]
    jsonschema.validate(row, STREAM_SCHEMA)
    assert (row["name"], row["first_offset"], row["next_offset"]) == ("log", 0, 3)
    assert row["max_bytes"] == 1 << 20
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.qos(1)
        with channel.consume("log", tag="reader"):
            found = console.get(f"{STREAMS}/%2F/log")
    jsonschema.validate(found, STREAM_DETAILS_SCHEMA)
    assert [one["tag"] for one in found["consumer_list"]] == ["reader"]
    assert (found["next_offset"], found["groups"]) == (3, [])
    (reader,) = found["consumer_list"]
    assert (reader["position"] + reader["lag"], reader["lag"] <= 3) == (3, True)
    assert found["segment_count"] == len(found["segments"]) == 1
    (segment,) = found["segments"]
    assert (segment["first_offset"], segment["bytes"] > 0) == (0, True)


@pytest.mark.parametrize("path", ["%2F/plain", "%2F/none", "none/log", "none"])
def test_what_is_no_stream_is_not_found(console: LocalConsole, path: str) -> None:
    assert console.ask("GET", f"{STREAMS}/{path}").status == 404


def test_streams_of_other_virtual_hosts_are_not_seen(console: LocalConsole) -> None:
    ada = ("ada", SECRET)
    assert console.get(STREAMS, user=ada) == []
    for path in ("%2F", "%2F/log"):
        assert console.ask("GET", f"{STREAMS}/{path}", user=ada).status == 404


def test_the_audit_log_is_chosen_by_user_what_and_time(console: LocalConsole) -> None:
    assert console.ask("PUT", "/api/queues/other/hers", {}, user=("ada", SECRET)).status == 201
    rows = console.get(f"{AUDIT}?user=ada&what=queue.created&vhost=other")
    assert [row["who"] for row in rows] == ["ada"]
    assert console.get(f"{AUDIT}?user=nobody") == []
    when = quote(rows[0]["time"], safe="")
    chosen = f"{AUDIT}?user=ada&what=queue.created"
    (again,) = console.get(f"{chosen}&since={when}")
    assert again["name"] == rows[0]["name"]
    assert console.get(f"{chosen}&until={when}") == []
    assert console.get(f"{AUDIT}?until=2000-01-01") == []


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize("value", ["never", "2026-99-01", "9" * 30])
def test_a_wrong_time_is_told(console: LocalConsole, name: str, value: str) -> None:
    answer = console.ask("GET", f"{AUDIT}?{name}={value}")
    assert answer.status == 400
    assert name in answer.json["reason"]
