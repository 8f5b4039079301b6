# SPDX-License-Identifier: Apache-2.0
"""``/api/health/checks``: answers for probes, 200 for health and 503 for none."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from headrace.console.api.common.alarms import active_alarms
from headrace.console.api.common.node import check_node
from headrace.console.api.common.schema_parts import TEXT, record
from headrace.console.http.answers import Answer
from headrace.console.http.errors import bad_request
from headrace.console.http.routes import ACCESS, NOBODY, Route
from headrace.node_name import node_name
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.broker.answers import CertificateRow, Health, Status
    from headrace.console.http.call import HttpCall
    from headrace.console.http.routes import Handler
    from headrace.untyped import JsonObject

OK = {"status": "ok"}
HEALTHY = record(status={"const": "ok"})
FAILURE: JsonObject = {
    "type": "object",
    "properties": {"status": {"const": "failed"}, "reason": TEXT},
    "required": ["status"],
}
FAILED = {"status": "failed"}
# The names of listeners in paths, by those of the broker.
PROTOCOLS = {
    "amqp": ("amqp", "amqp091", "amqp0-9-1", "amqp0.9.1"),
    "amqps": ("amqp/ssl", "amqps"),
    "http": ("http", "management"),
}
PERIOD = re.compile("[0-9]{1,4}")
UNITS = {
    "days": timedelta(days=1),
    "weeks": timedelta(weeks=1),
    "months": timedelta(days=30),
    "years": timedelta(days=365),
}


def failed(reason: str, **more: object) -> Answer:
    """Return the answer of a check that fails."""
    return Answer(503, {"status": "failed", "reason": reason, **more})


async def alarms(call: HttpCall) -> object:
    """Fail while an alarm blocks publishers."""
    active = await active_alarms(call)
    if not active:
        return OK
    rows = [
        {"node": node_name(), "resource": alarm["source"], "reason": alarm["reason"]}
        for alarm in active
    ]
    return failed("There are alarms in effect in the cluster", alarms=rows)


async def ports(call: HttpCall) -> dict[int, str]:
    """Return the ports that are open, with their protocols; the console's own included."""
    listens = (await call.state.status())["listens"]
    open_ports = {int(url.rpartition(":")[2]): protocol for protocol, url in listens.items()}
    name = call.request.transport.get_extra_info("sockname") if call.request.transport else None
    if name:
        open_ports[name[1]] = "http"
    return open_ports


async def port_listener(call: HttpCall) -> object:
    """Fail when nothing listens on a port."""
    text = call.path["port"]
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise bad_request("the port is not a number")
    open_ports = await ports(call)
    if int(text) in open_ports:
        return {**OK, "port": int(text)}
    return failed("No active listener", missing=int(text), ports=sorted(open_ports))


async def protocol_listener(call: HttpCall) -> object:
    """Fail when one of the protocols has no listener."""
    there = set((await ports(call)).values())
    names = {name for protocol in there for name in PROTOCOLS.get(protocol, (protocol,))}
    wanted = call.path["protocols"].split(",")
    missing = [protocol for protocol in wanted if protocol.lower() not in names]
    if not missing:
        return {**OK, "protocol": wanted[0]} if len(wanted) == 1 else OK
    return failed(
        "No active listener",
        missing=",".join(missing),
        protocols=sorted(PROTOCOLS[p][0] for p in there if p in PROTOCOLS),
    )


async def virtual_hosts(call: HttpCall) -> object:
    """Fail when the journal of a virtual host cannot be written."""
    report = cast("Health", await call.link.ask("health", checks=["store"]))
    if not report["checks"]["store"]:
        return OK
    return failed("Some virtual hosts are down", **{"virtual-hosts": [report["checks"]["store"]]})


async def fine(call: HttpCall) -> object:
    """Answer with health: there is one node, so the check cannot fail."""
    return OK


async def fine_node(call: HttpCall) -> object:
    """Answer with health for the name of this node."""
    check_node(call.path["node"])
    return OK


async def certificate(call: HttpCall) -> object:
    """Fail when a certificate of TLS expires within a period."""
    within, unit = call.path["within"], call.path["unit"]
    if not PERIOD.fullmatch(within) or unit not in UNITS:
        raise bad_request(f"the period is a number of {', '.join(UNITS)}")
    now, period = datetime.now(UTC), int(within) * UNITS[unit]
    rows = cast("list[CertificateRow]", (await call.link.answer("list certificates"))[0])
    ending = [row for row in rows if datetime.fromisoformat(row["expires"]) - now <= period]
    if not ending:
        return OK
    expired = [
        {"name": row["setting"], "certfile": row["file"], "certfile_expires_on": [row["expires"]]}
        for row in ending
    ]
    return failed("Certificates expiring", expired=expired)


async def in_service(call: HttpCall) -> object:
    """Fail while the broker accepts no clients; without login, so without details."""
    report = cast("Health", await call.link.shared("health", checks=["ready", "listeners"]))
    return OK if report["healthy"] else Answer(503, FAILED)


async def below_limit(call: HttpCall) -> object:
    """Fail when the broker has as many connections as it takes; without login, so no details."""
    status = cast("Status", await call.link.shared("status", counts=False))
    return OK if status["connections"] < status["connections_max"] else Answer(503, FAILED)


async def aliveness(call: HttpCall) -> object:
    """Answer with health for a virtual host that is open."""
    await call.ask("show vhost", vhost=call.path["vhost"])
    return OK


def check(path: str, handler: Handler, tag: str, summary: str) -> Route:
    """Return the route of a check."""
    permission = ACCESS if "{vhost}" in path else ""
    path = f"/api/health/checks/{path}"
    return Route(
        "GET",
        path,
        handler,
        tag,
        permission,
        summary,
        answer=HEALTHY,
        failure=FAILURE,
        is_free=True,
    )


ROUTES = (
    *(
        check(path, handler, MANAGEMENT, summary)
        for path, handler, summary in (
            ("alarms", alarms, "No alarm blocks publishers."),
            ("local-alarms", alarms, "The same, of this node."),
            ("port-listener/{port}", port_listener, "The broker or the console listens on a port."),
            ("protocol-listener/{protocols}", protocol_listener, "The protocols have listeners."),
            ("virtual-hosts", virtual_hosts, "The virtual hosts can be written."),
            (
                "certificate-expiration/{within}/{unit}",
                certificate,
                "No certificate of the broker's TLS expires within a period.",
            ),
            ("node-is-quorum-critical", fine, "Health: there is one node."),
            ("node-is-mirror-sync-critical", fine, "Health: there is one node."),
            ("metadata-store/initialized", fine, "Health: the store is the journal."),
            ("metadata-store/initialized/with-data", fine, "Health: the store is the journal."),
            (
                "quorum-queues-without-elected-leaders/all-vhosts",
                fine,
                "Health: there are no quorum queues.",
            ),
            (
                "quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}",
                fine,
                "Health: there are no quorum queues.",
            ),
            (
                "quorum-queues-without-elected-leaders/vhost/{vhost}",
                aliveness,
                "Health: there are no quorum queues.",
            ),
            (
                "quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}",
                aliveness,
                "Health: there are no quorum queues.",
            ),
        )
    ),
    *(
        check(path, handler, NOBODY, summary)
        for path, handler, summary in (
            ("is-in-service", in_service, "The broker accepts clients."),
            ("ready-to-serve-clients", in_service, "The broker accepts clients."),
            (
                "below-node-connection-limit",
                below_limit,
                "There are fewer connections than `connections_max`.",
            ),
            ("reached-target-cluster-size", fine, "Health: there is one node."),
        )
    ),
    *(
        Route(
            "GET",
            path,
            handler,
            MANAGEMENT,
            "",
            "Health: kept for old clients.",
            answer=HEALTHY,
            is_free=True,
        )
        for path, handler in (
            ("/api/healthchecks/node", fine),
            ("/api/healthchecks/node/{node}", fine_node),
        )
    ),
    Route(
        "GET",
        "/api/aliveness-test/{vhost}",
        aliveness,
        MANAGEMENT,
        ACCESS,
        "The virtual host is open.",
        is_free=True,
    ),
)
