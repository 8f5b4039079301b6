# SPDX-License-Identifier: Apache-2.0
"""What operators decide: transactions in doubt, leases, positions of groups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headrace.client import connect
from headrace.client.lease import Lease
from headrace.protocol.codec_0_x import DtxSelect, DtxSelectOk, DtxStart, DtxStartOk
from headrace.spec.tables import V0_9
from headrace.testing.raw_client import RawClient
from support.management_socket import ManagementClient, refusal

if TYPE_CHECKING:
    from headrace.testing import LocalBroker


@pytest.mark.parametrize(
    ("what", "status", "ready"), [("commit", "xa-ok", 1), ("rollback", "xa-ok", 0)]
)
def test_a_transaction_is_decided(
    broker: LocalBroker, operator: ManagementClient, what: str, status: str, ready: int
) -> None:
    operator.ask("declare queue", name="orders")
    host, port = broker.url.rpartition("@")[2].split("/")[0].split(":")
    client = RawClient(host, int(port), V0_9).open()
    client.call(DtxSelect(), DtxSelectOk)
    client.call(DtxStart(dtx_identifier="order-17"), DtxStartOk)
    client.publish("orders", b"m")
    assert client.count("orders") == 0
    assert operator.items("list transactions")[0]["publishes"] == 1
    fields = {"xid": "order-17", "what": what}
    operator.ask("put user", name="ada", password="secret", tags="management")
    given = {"configure": "^mine", "write": ".*", "read": ".*"}
    operator.ask("put permission", user="ada", vhost="/", **given)
    assert refusal(operator.login("ada", "secret"), "decide transaction", **fields) == "refused"
    assert operator.ask("decide transaction", **fields) == {"status": status}
    assert operator.items("list transactions") == []
    assert operator.items("list queues")[0]["ready"] == ready
    assert refusal(operator, "decide transaction", **fields) == "not-found"
    assert refusal(operator, "decide transaction", xid="x", what="guess") == "bad-request"
    client.drop()


def test_a_lease_is_released(broker: LocalBroker, operator: ManagementClient) -> None:
    operator.ask("declare queue", name="orders")
    for _ in range(3):
        operator.ask("publish", routing_key="orders", payload="m")

    async def take() -> None:
        async with connect(broker.url) as connection:
            async with Lease(connection, "orders", group="etl") as lease:
                await lease.claim()
                await lease.take(messages=2)

    asyncio.run(take())
    fields = {"queue": "orders", "group": "etl"}
    assert operator.items("list leases")[0]["leased"] == 2
    assert operator.ask("release lease", **fields, force=True)["released"] == 2
    assert operator.items("list queues")[0]["ready"] == 3
    operator.ask("release lease", **fields, force=True, forget=True)
    assert operator.items("list leases") == []
    assert refusal(operator, "release lease", **fields, force=True) == "not-found"


def test_a_group_is_set_and_deleted(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="events", arguments={"x-queue-type": "stream"})
    for _ in range(3):
        operator.ask("publish", routing_key="events", payload="m")
    fields = {"stream": "events", "group": "etl"}
    assert operator.ask("set group", **fields, position=1)["position"] == 1
    assert operator.items("list groups")[0]["lag"] == 2
    assert operator.ask("set group", **fields, position="next")["position"] == 3
    assert refusal(operator, "set group", **fields, position="soon") == "bad-request"
    assert refusal(operator, "set group", stream="none", group="etl", position=0) == "not-found"
    operator.ask("delete group", **fields, force=True)
    assert operator.items("list groups") == []
