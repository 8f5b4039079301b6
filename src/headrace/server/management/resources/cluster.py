# SPDX-License-Identifier: Apache-2.0
"""Operations about the cluster of a broker (:mod:`headrace.server.cluster`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.server.cluster.assignment import ledger_name
from headrace.server.management.operation_table import OperationTable
from headrace.store.errors import StoreError
from headrace.user_tags import ADMINISTER, MONITOR

if TYPE_CHECKING:
    from headrace.server.cluster.node import ClusterNode
    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.store.ledger.members import StandbyRow
    from headrace.store.ledger.postgres_members import Members

operation = OperationTable()

ALONE = "this broker is in no cluster: start it with the setting cluster"
MOVE_S = 30.0
STANDBYS_S = 2.0  # The time that the database has to answer.


def get_node(call: Call) -> ClusterNode:
    """Return the node of the broker; refuse the request if it is in no cluster."""
    node = call.broker.node
    if node is None:
        call.refuse("precondition", ALONE)
    return node


@operation("cluster status", MONITOR, reads=True)
async def status(call: Call) -> JsonLine:
    """Return the cluster, this broker's place in it, and the standbys of the database."""
    node = get_node(call)
    return {
        "cluster": node.cluster.id,
        "database": node.cluster.address.text,
        "broker": node.name,
        "state": node.heartbeat.state,
        "frozen": node.frozen,
        "trouble": node.heartbeat_error,
        "warnings": list(node.warnings.active.values()),
        "size": node.size,
        "size_max": node.cluster.size_max,
        "brokers": [row.name for row in node.census.alive()],
        "vhosts": {name: node.find_owner(name) for name in sorted(node.vhost_numbers())},
        "standbys": [standby._asdict() for standby in await fetch_standbys(node)],
    }


async def fetch_standbys(node: ClusterNode) -> list[StandbyRow]:
    """Return the standbys of the database; none while it does not answer."""
    rows: list[StandbyRow] = []

    def read_standbys(members: Members) -> None:
        rows.extend(members.standbys())

    try:
        async with asyncio.timeout(STANDBYS_S):
            await node.on_heartbeat(read_standbys)
    except (OSError, TimeoutError):
        return []
    return rows


@operation("list brokers", MONITOR, reads=True)
def list_brokers(call: Call) -> Steps:
    """List the brokers of the cluster, those that left or are down, too."""
    node = get_node(call)
    served: dict[str, int] = {}
    for name in node.vhost_numbers():
        owner = node.find_owner(name)
        served[owner] = served.get(owner, 0) + 1
    rows = [watched.row for _, watched in sorted(node.census.watched.items())]
    for row in rows:
        yield {
            "name": row.name,
            "address": f"{row.host}:{row.port}",
            "state": node.describe_state(row.name),
            "vhosts": served.get(row.name, 0),
            "own": row.name == node.name,
        }
    return {"items": len(rows)}


@operation("list owners", MONITOR, reads=True)
def list_owners(call: Call) -> Steps:
    """List the virtual hosts, who serves each, and how far the copy of this broker is behind."""
    node = get_node(call)
    lags = node.copies.lags()
    vhosts = sorted(node.vhost_numbers().items())
    for name, number in vhosts:
        ledger = ledger_name(name, number)
        row = node.ledgers.get(ledger)
        yield {
            "vhost": name,
            "broker": node.find_owner(name),
            "wanted": "" if row is None else row.preferred_owner,
            "epoch": 0 if row is None else row.epoch,
            "entries": 0 if row is None else row.last - row.front + 1,
            "behind": 0 if ledger in node.served else lags.get(ledger, -1),
            "trouble": node.down_reasons.get(ledger, "") or str(node.copies.broken.get(ledger, "")),
        }
    return {"items": len(vhosts)}


@operation("move vhost", ADMINISTER, fields="`vhost`, `broker`")
async def move(call: Call) -> JsonLine:
    """Let another broker serve a virtual host."""
    node = get_node(call)
    vhost = call.text("vhost")
    broker = call.text("broker")
    if vhost not in node.vhost_numbers():
        call.refuse("not-found", f"there is no vhost '{vhost}'")
    call.log(f"moves vhost '{vhost}' to broker '{broker}'")
    begun_s = node.loop.time()
    try:
        if not await node.move(vhost, broker, MOVE_S):
            call.refuse("precondition", f"broker {broker!r} has not taken it after {MOVE_S:g} s")
    except (StoreError, OSError) as error:
        call.refuse("precondition", str(error))
    return {"vhost": vhost, "broker": broker, "took_s": round(node.loop.time() - begun_s, 2)}


@operation("accept loss", ADMINISTER, fields="`vhost`")
async def accept(call: Call) -> JsonLine:
    """Serve a virtual host without what the database lost; keep this broker's files aside."""
    node = get_node(call)
    vhost = call.text("vhost")
    if vhost not in node.vhost_numbers():
        call.refuse("not-found", f"there is no vhost '{vhost}'")
    call.log(f"accepts that the database lost entries of vhost '{vhost}'")
    try:
        aside = await node.accept_loss(vhost)
    except (StoreError, OSError) as error:
        call.refuse("precondition", str(error))
    return {"vhost": vhost, "directory": aside}
