# SPDX-License-Identifier: Apache-2.0
"""Paths of what Headrace does not have, and lists that are constant: clients ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.node import check_node
from headrace.console.api.common.rows import check_vhost
from headrace.console.http.answers import Listed
from headrace.console.http.errors import HttpError
from headrace.console.http.routes import Route, by_path
from headrace.node_name import node_name
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

# What the broker can do, by RabbitMQ's names of feature flags.
FLAGS = {
    "classic_queue_type_delivery_support": "Deliveries of classic queues",
    "direct_exchange_routing_v2": "Routing of direct exchanges",
    "drop_unroutable_metric": "Count of dropped messages",
    "empty_basic_get_metric": "Count of gets from empty queues",
    "implicit_default_bindings": "Bindings of the default exchange are implicit",
    "listener_records_in_ets": "Listeners",
    "maintenance_mode_status": "Maintenance mode",
    "stream_filtering": "Filters of streams",
    "stream_queue": "Streams",
    "stream_single_active_consumer": "Single active consumers of streams",
    "stream_update_config_command": "Options of streams by policy",
    "tracking_records_in_ets": "Connections",
    "user_limits": "Limits of users",
    "virtual_host_metadata": "Metadata of virtual hosts",
}

#: RabbitMQ's names of protocols, which clients with strict decoders know. It does not tell 0-8 and
#: 0-9 from 0-9-1, and does not speak 0-10.
PROTOCOLS = {"0-8": "amqp091", "0-9": "amqp091", "0-9-1": "amqp091", "0-10": "amqp"}


async def empty(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return an empty list: there are none here."""
    check_vhost(call, vhost)
    return Listed([])


async def feature_flags(call: HttpCall) -> object:
    """Return the feature flags that clients ask about, all enabled."""
    rows = [
        {
            "name": name,
            "desc": about,
            "doc_url": "",
            "state": "enabled",
            "stability": "stable",
            "provided_by": "headrace",
        }
        for name, about in FLAGS.items()
    ]
    return Listed(rows, ("name",))


async def version(call: HttpCall) -> object:
    """Return the version of the API."""
    return call.settings.rabbitmq_version


async def attempts(call: HttpCall) -> object:
    """Return the logins by protocol since the broker was started."""
    return Listed([one for one in await logins(call) if not one["remote_address"]], ())


async def attempts_by_source(call: HttpCall) -> object:
    """Return the logins by protocol, address and user: those of the last 1,000 sources."""
    return Listed([one for one in await logins(call) if one["remote_address"]], ())


async def logins(call: HttpCall) -> list[JsonObject]:
    """Return the logins as RabbitMQ describes them."""
    check_node(call)
    sums: dict[tuple[str, str, str], tuple[int, int]] = {}
    for one in await call.state.logins.all():
        protocol = PROTOCOLS.get(one.text("protocol"), one.text("protocol"))
        source = one.text("host"), one.text("user"), protocol
        succeeded, failed = sums.get(source, (0, 0))
        sums[source] = succeeded + one.number("succeeded"), failed + one.number("failed")
    return [
        {
            "remote_address": host,
            "username": user,
            "protocol": protocol,
            "auth_attempts": succeeded + failed,
            "auth_attempts_failed": failed,
            "auth_attempts_succeeded": succeeded,
        }
        for (host, user, protocol), (succeeded, failed) in sums.items()
    ]


async def top(call: HttpCall) -> object:
    """Return the node without Erlang's processes."""
    check_node(call)
    return {"node": node_name(), "processes": []}


async def effective_config(call: HttpCall) -> object:
    """Return the settings that apply; the broker hides secrets."""
    return {row["name"]: row["value"] for row in await call.rows("list settings")}


async def no_hash(call: HttpCall) -> object:
    """Refuse to take a password in a URL."""
    reason = "a URL must not have a password: PUT /api/users takes it, or its hash"
    raise HttpError(405, reason)


NONE = (
    ("/api/federation-links", MONITORING, "Always empty: there is no federation."),
    ("/api/federation-links/{vhost}", MONITORING, "Always empty: there is no federation."),
    ("/api/shovels", MONITORING, "Always empty: there are no shovels."),
    ("/api/shovels/{vhost}", MONITORING, "Always empty: there are no shovels."),
    ("/api/stream/connections", MANAGEMENT, "Always empty: the stream protocol is not served."),
    ("/api/stream/connections/{vhost}", MANAGEMENT, "Always empty, as without `{vhost}`."),
    ("/api/stream/publishers", MANAGEMENT, "Always empty: the stream protocol is not served."),
    ("/api/stream/publishers/{vhost}", MANAGEMENT, "Always empty, as without `{vhost}`."),
    ("/api/stream/consumers", MANAGEMENT, "Always empty: the stream protocol is not served."),
    ("/api/stream/consumers/{vhost}", MANAGEMENT, "Always empty, as without `{vhost}`."),
    ("/api/extensions", MANAGEMENT, "Always empty: pages have no extensions."),
    ("/api/deprecated-features", MANAGEMENT, "No deprecated features."),
    ("/api/deprecated-features/used", MANAGEMENT, "No deprecated features."),
    ("/api/traces", ADMINISTRATOR, "Always empty: `headrace trace` publishes traces as messages."),
    ("/api/traces/{vhost}", ADMINISTRATOR, "Always empty, as without `{vhost}`."),
)
ROUTES = (
    *(
        Route("GET", path, by_path(empty), tag, "", summary, paged=True)
        for path, tag, summary in NONE
    ),
    Route(
        "GET",
        "/api/feature-flags",
        feature_flags,
        MANAGEMENT,
        "",
        "Feature flags that clients ask about, all enabled.",
        paged=True,
    ),
    *(
        Route("GET", path, handler, MONITORING, "", summary, paged=True)
        for path, handler, summary in (
            ("/api/auth/attempts/{node}", attempts, "The logins by protocol."),
            (
                "/api/auth/attempts/{node}/source",
                attempts_by_source,
                "The logins by protocol, address and user, of the last 1,000 of them.",
            ),
        )
    ),
    Route("GET", "/api/version", version, MANAGEMENT, "", "The version of the API."),
    Route(
        "GET",
        "/api/config/effective",
        effective_config,
        ADMINISTRATOR,
        "",
        "The settings that apply, by name, without secrets.",
    ),
    Route("GET", "/api/top/{node}", top, MONITORING, "", "No processes: there is no Erlang."),
    Route(
        "GET",
        "/api/auth/hash_password/{password}",
        no_hash,
        ADMINISTRATOR,
        "",
        "405: a URL must not have a password.",
    ),
)
