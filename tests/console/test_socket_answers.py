# SPDX-License-Identifier: Apache-2.0
"""The types of the socket's answers are those of a broker: no key is read that it does not send."""

from __future__ import annotations

import asyncio
import types
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import pytest
import trustme

from headrace.client import connect
from headrace.client.lease import Lease
from headrace.console.broker import answers
from support.console import LocalConsole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with something in each list."""
    home = tmp_path_factory.mktemp("data")
    with LocalConsole(home, broker=certificate(home)) as console:
        link: Any = console.console.link  # type: ignore[union-attr]
        stream = {"x-queue-type": "stream"}
        console.run(link.ask("set alarm", vhost="/", reason="maintenance"))
        console.run(link.ask("declare queue", name="orders"))
        console.run(link.ask("declare queue", name="events", arguments=stream))
        console.run(link.ask("set group", stream="events", group="etl", position=0))
        asyncio.run(take(console.broker.url))
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
    if isinstance(kind, types.UnionType):
        return any(is_of(value, one) for one in get_args(kind))
    if get_origin(kind) is dict:
        assert isinstance(value, dict)
        return all(is_of(one, get_args(kind)[1]) for one in value.values())
    if get_origin(kind) is list:
        assert isinstance(value, list)
        return all(is_of(one, get_args(kind)[0]) for one in value)
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
    ("do", "declared"),
    [
        ("list alarms", answers.AlarmRow),
        ("list groups", answers.GroupRow),
        ("list leases", answers.LeaseRow),
        ("list certificates", answers.CertificateRow),
    ],
)
def test_rows_have_their_type(served: LocalConsole, do: str, declared: type) -> None:
    link: Any = served.console.link  # type: ignore[union-attr]
    rows, _ = served.run(link.answer(do))
    assert rows
    assert [differences(row, declared) for row in rows] == [{}] * len(rows)


@pytest.mark.parametrize(
    ("do", "fields", "declared"),
    [
        ("status", {"counts": False}, answers.Status),
        ("health", {"checks": ["store", "ready"]}, answers.Health),
    ],
)
def test_last_lines_have_their_type(
    served: LocalConsole, do: str, fields: dict[str, object], declared: type
) -> None:
    link: Any = served.console.link  # type: ignore[union-attr]
    assert differences(served.run(link.ask(do, **fields)), declared) == {}
