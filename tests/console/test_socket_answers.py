# SPDX-License-Identifier: Apache-2.0
"""The types of the socket's answers are those of a broker: no key is read that it does not send."""

from __future__ import annotations

import asyncio
import types
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest
import trustme

from headrace.client import blocking, connect
from headrace.client.blocking_pipeline import Sink
from headrace.client.lease import Lease
from headrace.console.broker import answers, lists
from headrace.management_operations import OperationName
from headrace.management_rows import RouteAnswer, TopologyGraph
from headrace.model.exchange.deduplication import ARGUMENT
from headrace.server.management.operations import OPERATIONS
from support.console import LocalConsole
from support.console_objects import begin_transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Lists that need a running job, or the fields of a request. Their rows are tested elsewhere:
#: ``test_jobs_that_run_are_of_their_schema`` and ``test_a_line_of_the_log_is_of_its_schema``.
TESTED_ELSEWHERE = (lists.JOBS, lists.LOG_LINES)
#: The lists with a type for their rows.
LISTS = [
    (listing, row_type)
    for listing in vars(lists).values()
    if isinstance(listing, lists.ListOperation)
    for (row_type,) in [get_args(vars(listing)["__orig_class__"])]
    if is_typeddict(row_type) and listing not in TESTED_ELSEWHERE
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with something in each list."""
    home = tmp_path_factory.mktemp("data")
    backups = {"backup_directory": tmp_path_factory.mktemp("backups")}
    with LocalConsole(home, broker=certificate(home) | backups) as console:
        link: Any = console.console.link  # type: ignore[union-attr]
        stream = {"x-queue-type": "stream"}
        console.run(link.ask("set alarm", vhost="/", reason="maintenance"))
        console.run(link.ask("declare queue", name="orders"))
        console.run(link.ask("declare queue", name="once", arguments={ARGUMENT: True}))
        console.run(link.ask("back up", name="first"))
        console.run(link.ask("declare queue", name="events", arguments=stream))
        console.run(link.ask("set group", stream="events", group="etl", position=0))
        policy = {"vhost": "/", "name": "short", "pattern": ".*", "definition": {"max-length": 9}}
        console.run(link.ask("put policy", **policy))
        console.run(link.ask("put global parameter", name="team", value={"a": 1}))
        console.run(link.ask("put limit", vhost="/", name="max-queues", value=90))
        console.run(link.ask("put limit", user="guest", name="max-channels", value=90))
        topic = {"user": "guest", "vhost": "/", "exchange": "amq.topic"}
        console.run(link.ask("put topic permission", **topic, write=".*", read=".*"))
        console.run(link.ask("bind", source="amq.topic", destination="orders", routing_key="#"))
        asyncio.run(take(console.broker.url))
        with (
            blocking.connect(console.broker.url) as connection,
            begin_transaction(console, "orders"),
            Sink(connection, "rows") as sink,
            connection.channel().consume("orders"),
        ):
            sink.begin("query", "run")
            yield console


def certificate(home: Path) -> dict[str, Any]:
    issued = trustme.CA().issue_cert("localhost")
    chain, key = home / "chain.pem", home / "key.pem"
    chain.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return {"tls_cert": chain, "tls_key": key, "tls_port": 0}


async def take(url: str) -> None:
    async with connect(url) as connection, Lease(connection, "orders", group="etl") as lease:
        await lease.claim()


def is_of(value: object, kind: Any) -> bool:
    """Return True if a value that was decoded from JSON has a type."""
    if kind is Any:
        return True
    if isinstance(kind, types.UnionType):
        return any(is_of(value, one) for one in get_args(kind))
    if get_origin(kind) is dict:
        assert isinstance(value, dict)
        return all(is_of(one, get_args(kind)[1]) for one in value.values())
    if get_origin(kind) is list:
        assert isinstance(value, list)
        return all(is_of(one, get_args(kind)[0]) for one in value)
    if is_typeddict(kind):
        assert isinstance(value, dict)
        return not differences(value, kind)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind


def differences(answer: dict[str, Any], declared: type) -> dict[str, object]:
    """Return the keys that an answer lacks, or has with another type."""
    absent = object()
    values = {key: answer.get(key, absent) for key in get_type_hints(declared)}
    kinds = get_type_hints(declared)
    return {key: value for key, value in values.items() if not is_of(value, kinds[key])}


@pytest.mark.parametrize(
    ("listing", "declared"),
    [
        pytest.param(listing, declared, id=f"{listing.name}-{declared.__name__}")
        for listing, declared in LISTS
    ],
)
def test_rows_have_their_type(
    served: LocalConsole, listing: lists.ListOperation[object], declared: type
) -> None:
    link: Any = served.console.link  # type: ignore[union-attr]
    items = served.run(link.rows(listing))
    assert items
    assert [differences(item, declared) for item in items] == [{}] * len(items)


@pytest.mark.parametrize(
    ("do", "fields", "declared"),
    [
        ("status", {"counts": False}, answers.Status),
        ("health", {"checks": ["store", "ready"]}, answers.Health),
        ("route", {"exchange": "", "routing_key": "orders"}, RouteAnswer),
        ("show topology", {"kind": "queue", "name": "orders"}, TopologyGraph),
    ],
)
def test_last_lines_have_their_type(
    served: LocalConsole, do: str, fields: dict[str, object], declared: type
) -> None:
    link: Any = served.console.link  # type: ignore[union-attr]
    assert differences(served.run(link.ask(do, **fields)), declared) == {}


def test_every_operation_has_a_name_that_both_sides_know() -> None:
    assert set(get_args(OperationName)) == set(OPERATIONS)
