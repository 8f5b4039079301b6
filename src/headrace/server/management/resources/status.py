# SPDX-License-Identifier: Apache-2.0
"""The broker's status, counts and health."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.server.cluster.warnings import HARMLESS
from headrace.server.config.json_values import iso_time
from headrace.server.data.journal_sums import sum_sizes
from headrace.server.management.call import live_queues
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import LOOK, MONITOR

if TYPE_CHECKING:
    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.server.management.managed_broker import ManagedBroker

operation = OperationTable()


@operation("status", MONITOR, reads=True, fields="`counts` (true)")
def status(call: Call) -> Steps:
    """Return version, addresses and counts; without ``counts``, only those known at once."""
    broker = call.broker
    counters = broker.counters
    delivered, acknowledged = counters.queues_ended.delivered(), counters.queues_ended.ack
    for vhost in list(broker.vhosts.values()) if call.flag("counts", True) else ():
        delivered += vhost.queues_ended.delivered()
        acknowledged += vhost.queues_ended.ack
        for queue in live_queues(vhost):  # Each is a step, as there may be many.
            for lane in (queue, *(queue.lanes or {}).values()):
                delivered += lane.delivered
                acknowledged += lane.acknowledged
            yield None
    return {
        "version": __version__,
        "pid": os.getpid(),
        "since": iso_time(broker.started_ms),
        "identity": broker.storage.identity,
        "listens": dict(broker.addresses),
        "mechanisms": broker.context.mechanisms.decode().split(),
        "data": None if broker.settings.memory else str(broker.settings.data.absolute()),
        "draining": broker.drain.active,
        "connections": len(broker.drain.open_transports()),
        "connections_max": broker.settings.connections_max,
        "vhosts": len(broker.vhosts),
        "memory_used": counters.memory_used,
        "memory_max": counters.memory_max,
        **describe_journals(broker),
        "loop_delays": broker.loop_delay.by_bound(),
        "loop_delay_sum_s": round(broker.loop_delay.sum_s, 6),
        "loop_delay_longest_s": round(broker.loop_delay.longest_s, 6),
        "disk_free_min": broker.settings.disk_free_min,
        "published": counters.published,
        "delivered": delivered,
        "acknowledged": acknowledged,
    }


def describe_journals(broker: ManagedBroker) -> JsonLine:
    """Return the counts and sizes of the journals; each group has one sync."""
    stores = list(broker.storage.stores.values())
    counts, size = broker.storage.journal_sums.counts(stores), sum_sizes(stores)
    return {
        "journal_groups": counts.groups,
        "journal_copied_bytes": counts.copied_bytes,
        "journal_bytes": size.bytes,
        "journal_segments": size.segments,
        "paged_out": counts.paged_out,
        "paged_in": counts.paged_in,
    }


def alarm_problems(broker: ManagedBroker) -> str:
    """Return the active alarms in words; empty if there are none."""
    return ", ".join(
        f"{alarm.reason} ({alarm.vhost})" if alarm.vhost else alarm.reason
        for alarm in broker.alarms.active
    )


def listener_problems(broker: ManagedBroker) -> str:
    """Return the ports that the broker should listen on and does not; empty if there are none."""
    listeners = broker.ports.listeners.values()
    closed = [str(listener.address[1]) for listener in listeners if listener.socket is None]
    return f"closed: port {', '.join(closed)}" if closed else ""


def store_problems(broker: ManagedBroker) -> str:
    """Return the files that cannot be written, in words; empty if there are none."""
    stores = broker.storage.stores.items()
    unwritable = [f"journal of vhost '{vhost}'" for vhost, store in stores if store.full]
    if broker.audit.file is not None and broker.audit.file.failing:
        consequence = "; logins and changes are refused" if broker.audit.file.strict else ""
        unwritable.append(f"audit log: {broker.audit.file.failing}{consequence}")
    return f"cannot be written: {', '.join(unwritable)}" if unwritable else ""


def readiness_problem(broker: ManagedBroker) -> str:
    """Return why new clients are not accepted; empty if they are."""
    return "draining" if broker.drain.active else "" if broker.started_ms else "starting"


def cluster_problems(broker: ManagedBroker) -> str:
    """Return the problems of replication and of the cluster's virtual hosts; empty without any."""
    node = broker.node
    if node is None:
        return ""
    problems = [f"not replicated: {node.heartbeat_error}"] if node.heartbeat_error else []
    warnings = node.warnings.active.items()
    problems += [text for warned, text in warnings if warned.subject not in HARMLESS]
    problems += [
        f"vhost '{ledger.split(' ', 1)[1]}': {reason}"
        for ledger, reason in node.down_reasons.items()
    ]
    return "; ".join(problems)


CHECKS = {
    "ready": readiness_problem,
    "listeners": listener_problems,
    "alarms": alarm_problems,
    "store": store_problems,
    "cluster": cluster_problems,
}


def vhost_problem(broker: ManagedBroker, vhost: str) -> str:
    """Return which other broker serves a virtual host, in words; empty if this broker does."""
    if broker.context.serves(vhost):
        return ""
    return f"'{vhost}' is served by {broker.describe_server(vhost)}"


@operation("health", LOOK, reads=True, fields="`checks`, `vhost`")
def health(call: Call) -> JsonLine:
    """Run ``checks``, or all; return the problems that each finds, empty without any.

    With ``vhost``, also check that this broker serves the virtual host.
    """
    checks = call.request.get("checks", list(CHECKS))
    if not isinstance(checks, list) or not all(name in CHECKS for name in checks):
        call.refuse("bad-request", f"'checks' must be among {', '.join(CHECKS)}")
    problems = {name: CHECKS[name](call.broker) for name in checks}
    if "vhost" in call.request:
        problems["vhost"] = vhost_problem(call.broker, call.text("vhost"))
    return {"healthy": not any(problems.values()), "checks": problems}
