# SPDX-License-Identifier: Apache-2.0
"""``/api/health/checks`` for probes: 200 if a check passes, 503 if it fails."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias, cast

from headrace.console.api.common.alarms import active_alarms
from headrace.console.api.common.node import check_node
from headrace.console.api.common.schemas import TEXT, record
from headrace.console.broker.lists import CERTIFICATES
from headrace.console.http.answers import Answer
from headrace.console.http.routes import ACCESS, NOBODY, Routes
from headrace.console.http_errors import bad_request
from headrace.node_name import node_name
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.broker.answers import Health, Status
    from headrace.console.http.call import HttpCall
    from headrace.console.http.routes import Decorator
    from headrace.untyped import JsonObject

Result: TypeAlias = "Answer | JsonObject"  # The result of a check.
OK: JsonObject = {"status": "ok"}
HEALTHY_SCHEMA = record(status={"const": "ok"})
FAILURE_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"status": {"const": "failed"}, "reason": TEXT},
    "required": ["status"],
}
FAILED = {"status": "failed"}
# The names of protocols in paths, by the name of the listener of the broker or the console.
PROTOCOLS = {
    "amqp": ("amqp", "amqp091", "amqp0-9-1", "amqp0.9.1"),
    "amqps": ("amqp/ssl", "amqps"),
    "http": ("http", "management"),
    "https": ("https", "http", "management"),
    "http/prometheus": ("http/prometheus",),
    "https/prometheus": ("https/prometheus", "http/prometheus"),
}
PERIOD = re.compile("[0-9]{1,4}")
UNITS = {
    "days": timedelta(days=1),
    "weeks": timedelta(weeks=1),
    "months": timedelta(days=30),
    "years": timedelta(days=365),
}
CHECKS = "/api/health/checks"
ROUTES = Routes()


def health_check(
    paths: Mapping[str, str], *, tag: str = MANAGEMENT, permission: str = ""
) -> Decorator:
    """Return a decorator: the function handles checks, which no limit of requests counts."""
    return ROUTES.get(
        {f"{CHECKS}/{path}": summary for path, summary in paths.items()},
        tag=tag,
        permission=permission,
        answer=HEALTHY_SCHEMA,
        failure=FAILURE_SCHEMA,
        is_free=True,
    )


def failure(reason: str, **details: object) -> Answer:
    """Return the answer of a check that fails."""
    return Answer(503, {"status": "failed", "reason": reason, **details})


# --- Checks with a login -------------------------------------------------------------------------


@health_check({"alarms": "No alarm blocks publishers.", "local-alarms": "The same, of this node."})
async def check_alarms(call: HttpCall) -> Result:
    """Fail while an alarm blocks publishers."""
    active = await active_alarms(call)
    if not active:
        return OK
    rows = [
        {"node": node_name(), "resource": alarm["source"], "reason": alarm["reason"]}
        for alarm in active
    ]
    return failure("There are alarms in effect in the cluster", alarms=rows)


async def open_listeners(call: HttpCall) -> set[tuple[int, str]]:
    """Return the port and protocol of each listener of the broker and of the console."""
    status = cast("Status", await call.link.ask_shared("status", counts=False))
    listens = (*status["listens"].items(), *call.state.console_listens)
    return {(int(url.rpartition(":")[2]), protocol) for protocol, url in listens}


@health_check({"port-listener/{port}": "The broker or the console listens on a port."})
async def check_port_listener(call: HttpCall, port: str) -> Result:
    """Fail if nothing listens on a port."""
    is_number = port.isascii() and port.isdecimal() and len(port) <= 18
    if not is_number or int(port) > 65535:
        raise bad_request("the port is not a number")
    open_ports = {number for number, _ in await open_listeners(call)}
    if int(port) in open_ports:
        return {**OK, "port": int(port)}
    return failure("No active listener", missing=int(port), ports=sorted(open_ports))


@health_check({"protocol-listener/{protocols}": "The protocols have listeners."})
async def check_protocol_listeners(call: HttpCall, protocols: str) -> Result:
    """Fail if one of the protocols, separated by commas, has no listener."""
    listening = {protocol for _, protocol in await open_listeners(call)}
    names = {name for protocol in listening for name in PROTOCOLS.get(protocol, (protocol,))}
    requested = protocols.split(",")
    missing = [protocol for protocol in requested if protocol.lower() not in names]
    if not missing:
        return {**OK, "protocol": requested[0]} if len(requested) == 1 else OK
    return failure(
        "No active listener",
        missing=",".join(missing),
        protocols=sorted(PROTOCOLS[name][0] for name in listening if name in PROTOCOLS),
    )


@health_check({"virtual-hosts": "The journals of the virtual hosts are writable."})
async def check_virtual_hosts(call: HttpCall) -> Result:
    """Fail if the journal of a virtual host cannot be written."""
    report = cast("Health", await call.link.ask("health", checks=["store"]))
    if not report["checks"]["store"]:
        return OK
    return failure("Some virtual hosts are down", **{"virtual-hosts": [report["checks"]["store"]]})


@health_check(
    {
        "certificate-expiration/{within}/{unit}": "No certificate of the broker's TLS expires "
        "within a period."
    }
)
async def check_certificate_expiration(call: HttpCall, within: str, unit: str) -> Result:
    """Fail if a certificate of TLS expires within a period."""
    if not PERIOD.fullmatch(within) or unit not in UNITS:
        raise bad_request(f"the period is a number of {', '.join(UNITS)}")
    now, period = datetime.now(UTC), int(within) * UNITS[unit]
    certificates = await call.link.rows(CERTIFICATES)
    expired = [
        {"name": row["setting"], "certfile": row["file"], "certfile_expires_on": [row["expires"]]}
        for row in certificates
        if datetime.fromisoformat(row["expires"]) - now <= period
    ]
    return failure("Certificates expiring", expired=expired) if expired else OK


@health_check(
    {
        "node-is-quorum-critical": "Passes always: brokers hold no quorum.",
        "node-is-mirror-sync-critical": "Passes always: there are no mirrored queues.",
        "metadata-store/initialized": "Passes always: the journal holds the metadata.",
        "metadata-store/initialized/with-data": "Passes always: the journal holds the metadata.",
        "quorum-queues-without-elected-leaders/all-vhosts": "Passes always: queues have no "
        "elected leaders.",
        "quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}": "Passes always: "
        "queues have no elected leaders.",
    }
)
async def pass_always(call: HttpCall, pattern: str = "") -> Result:
    """Pass: what the check looks for does not exist here, even with several brokers."""
    return OK


@health_check(
    {
        "quorum-queues-without-elected-leaders/vhost/{vhost}": "Passes if the virtual host exists.",
        "quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}": "Passes if the "
        "virtual host exists.",
    },
    permission=ACCESS,
)
async def check_leaders_in_vhost(call: HttpCall, vhost: str, pattern: str = "") -> Result:
    """Pass for a virtual host that exists: its queues have no elected leaders."""
    return await check_aliveness(call, vhost)


# --- Checks without a login, which give no details -----------------------------------------------


@health_check(
    {
        "is-in-service": "The broker accepts clients.",
        "ready-to-serve-clients": "The broker accepts clients.",
    },
    tag=NOBODY,
)
async def check_in_service(call: HttpCall) -> Result:
    """Fail while the broker accepts no clients."""
    report = cast("Health", await call.link.ask_shared("health", checks=["ready", "listeners"]))
    return OK if report["healthy"] else Answer(503, FAILED)


@health_check(
    {"below-node-connection-limit": "There are fewer connections than `connections_max`."},
    tag=NOBODY,
)
async def check_connection_limit(call: HttpCall) -> Result:
    """Fail if the broker has as many connections as it accepts."""
    status = cast("Status", await call.link.ask_shared("status", counts=False))
    return OK if status["connections"] < status["connections_max"] else Answer(503, FAILED)


@health_check(
    {"reached-target-cluster-size": "Passes always: there is no target size."}, tag=NOBODY
)
async def check_cluster_size(call: HttpCall) -> Result:
    """Pass: a cluster of brokers has no target size."""
    return OK


# --- Former checks -------------------------------------------------------------------------------


@ROUTES.get(
    {
        "/api/healthchecks/node": "Passes always; for old clients.",
        "/api/healthchecks/node/{node}": "Passes for the name of this node; for old clients.",
    },
    tag=MANAGEMENT,
    answer=HEALTHY_SCHEMA,
    is_free=True,
)
async def check_this_node(call: HttpCall, node: str = "") -> Result:
    """Pass for the name of this node."""
    if node:
        check_node(node)
    return OK


@ROUTES.get(
    {"/api/aliveness-test/{vhost}": "The virtual host exists."},
    tag=MANAGEMENT,
    permission=ACCESS,
    is_free=True,
    answer=HEALTHY_SCHEMA,
)
async def check_aliveness(call: HttpCall, vhost: str) -> Result:
    """Pass for a virtual host that exists."""
    await call.broker.ask("show vhost", vhost=vhost)
    return OK
