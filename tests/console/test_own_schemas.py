# SPDX-License-Identifier: Apache-2.0
"""Every path of our own has a schema, and real answers are of it."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jsonschema
import pytest

from headrace.client import blocking, connect
from headrace.client.blocking_pipeline import Sink
from headrace.client.lease import Lease
from headrace.console.api.logs import log_line
from headrace.console.api.routes import ROUTES
from headrace.console.http.routes import JSON
from headrace.model.exchange.deduplication import ARGUMENT
from support.answer_schemas import OWN, OWN_SCHEMAS
from support.console import LocalConsole
from support.console_objects import begin_transaction
from support.console_pipelines import claim_groups, places, run_pipeline
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_BODY = {"DELETE /api/headrace/jobs/{vhost}/{id}"}  # Answered with 204.
NAMES = {
    "vhost": "%2F",
    "queue": "full",
    "exchange": "amq.default",
    "stream": "orders",
    "pipeline": "orders",
    "group": "etl",
    "id": "counted",
}
#: Requests that change something, in this order: path, names in it, body.
WRITES = (
    ("PUT", "groups/{vhost}/{stream}/{group}", {"position": 0}),
    ("DELETE", "groups/{vhost}/{stream}/{group}", None),
    ("POST", "leases/{vhost}/{queue}/{group}/release", {"force": True}),
    ("POST", "queues/{vhost}/{queue}/jobs", {"do": "delete", "dry_run": True, "id": "counted"}),
    ("POST", "transactions/{vhost}/{xid}", {"what": "rollback"}),
)
#: Lists that are empty here: the broker has no log file, and no directory of backups.
MAY_BE_EMPTY = {f"{OWN}/logs/broker", f"{OWN}/backups"}
MESSAGES = 500  # Of a queue that a job is slow with.


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A console with an object of each kind that our paths lead to."""
    data, folder = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("pipelines")
    audit = {"audit_log": str(data / "audit.log")}
    with (
        LocalConsole(data, broker=audit, pipelines=places(folder)) as running,
        run_pipeline(folder),
    ):
        link: Any = running.console.link  # type: ignore[union-attr]
        claim_groups(running.broker.url)
        dies = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        for name, arguments in (("dead", {}), ("full", {}), ("dying", dies)):
            running.run(link.ask("declare queue", name=name, arguments=arguments))
        for name in ("dying", "full", "full", "full"):
            running.run(link.ask("publish", exchange="", routing_key=name, payload="m"))
        wanted = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
        assert running.ask("POST", "/api/queues/%2F/dying/get", wanted).json
        asyncio.run(take(running.broker.url))
        running.run(link.ask("declare queue", name="once", arguments={ARGUMENT: True}))
        with blocking.connect(running.broker.url) as connection:
            with Sink(connection, "rows") as sink:
                sink.begin("query", "run")
        with begin_transaction(running, "full"):
            yield running


async def take(url: str) -> None:
    """Have a group take a message of a queue, and keep its lease."""
    async with connect(url) as connection:
        async with Lease(connection, "full", group="etl") as lease:
            await lease.claim()
            await lease.take(messages=1)


def path_of(template: str, console: LocalConsole) -> str:
    """Return a path to one of the objects."""
    names = {**NAMES, "xid": quote(xid(console), safe="") if "{xid}" in template else ""}
    if template.endswith("dead-letters"):
        names["queue"] = "dead"
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], template)


def xid(console: LocalConsole) -> str:
    """Return the name of the transaction."""
    (row,) = console.get(f"{OWN}/transactions")
    return str(row["xid"])


def rows_in(found: Any) -> Any:
    """Return what an answer has rows in."""
    if isinstance(found, dict):
        return next((v for v in found.values() if isinstance(v, list)), found)
    return found


READS = [
    key.removeprefix("GET ") for key in OWN_SCHEMAS if key.startswith("GET ") and "/jobs" not in key
]


@pytest.mark.parametrize("template", READS)
def test_answers_are_of_their_schema(console: LocalConsole, template: str) -> None:
    found = console.get(f"{path_of(template, console)}?routing_key=full")
    assert rows_in(found) or template in MAY_BE_EMPTY, "no row that the schema could check"
    jsonschema.validate(found, OWN_SCHEMAS[f"GET {template}"])


@pytest.mark.parametrize("line", ["2026-11-23 10:00:00 INFO headrace: begins", '{"time": "t"}', ""])
def test_a_line_of_the_log_is_of_its_schema(line: str) -> None:
    row = {"number": 1, "name": line, **log_line(line)}
    jsonschema.validate([row], OWN_SCHEMAS[f"GET {OWN}/logs/broker"])


def test_a_page_of_a_list_is_of_its_schema(console: LocalConsole) -> None:
    found = console.get(f"{OWN}/settings?page=2&page_size=10")
    jsonschema.validate(found, OWN_SCHEMAS[f"GET {OWN}/settings"])
    assert len(found["items"]) == 10


def test_the_answers_of_writes_are_of_their_schema(console: LocalConsole) -> None:
    for method, template, body in WRITES:
        path = path_of(f"{OWN}/{template}", console)
        answer = console.ask(method, path, body)
        assert answer.status in (200, 202), answer.body
        jsonschema.validate(answer.json, OWN_SCHEMAS[f"{method} {OWN}/{template}"])
    shown = f"{OWN}/jobs/{{vhost}}/{{id}}"
    jsonschema.validate(console.get(path_of(shown, console)), OWN_SCHEMAS[f"GET {shown}"])


def test_jobs_that_run_are_of_their_schema(console: LocalConsole) -> None:
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("long")
        for _ in range(MESSAGES):
            channel.publish(b"m", routing_key="long")
    rows: list[dict[str, Any]] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while not rows and time.monotonic() < deadline_s:  # One may be over before it is asked for.
        body = {"do": "delete", "dry_run": True}
        assert console.ask("POST", f"{OWN}/queues/%2F/long/jobs", body).status in (200, 202)
        rows = console.get(f"{OWN}/jobs")
    assert rows
    jsonschema.validate(rows, OWN_SCHEMAS[f"GET {OWN}/jobs"])


def test_every_path_of_our_own_has_a_schema() -> None:
    ours = {
        f"{route.method} {route.path}"
        for route in ROUTES
        if route.path.startswith(f"{OWN}/") and route.media == JSON
    }
    assert ours - NO_BODY == set(OWN_SCHEMAS)
