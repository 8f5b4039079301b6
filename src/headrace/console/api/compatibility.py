# SPDX-License-Identifier: Apache-2.0
"""Paths that clients request, for features that Headrace does not have: empty or constant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.lookups import visible_vhost
from headrace.console.api.common.node import check_node
from headrace.console.api.common.schemas import TEXT, record
from headrace.console.http.answers import RowList
from headrace.console.http.routes import Routes
from headrace.console.http_errors import HttpError, not_found
from headrace.node_name import node_name
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

# The feature flags that clients ask about, with descriptions.
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
EMPTY_LISTS = (
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
FEATURE_FLAG_SCHEMA = record(
    name=TEXT,
    state={"enum": ["enabled", "disabled"]},
    desc=TEXT,
    doc_url=TEXT,
    stability=TEXT,
    provided_by=TEXT,
)
DECODED_LISTS = ("/api/federation-links", "/api/shovels")  # Clients decode them strictly.
EMPTY_LIST_SCHEMA: JsonObject = {"type": "array", "maxItems": 0}
ROUTES = Routes()


async def list_nothing(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return an empty list."""
    visible_vhost(call, vhost)
    return RowList([])


for path, tag, summary in EMPTY_LISTS:
    answer = EMPTY_LIST_SCHEMA if path in DECODED_LISTS else {}
    ROUTES.get({path: summary}, tag=tag, paged=True, answer=answer)(list_nothing)


@ROUTES.get_list(
    {"/api/feature-flags": "Feature flags that clients ask about, all enabled."},
    rows=FEATURE_FLAG_SCHEMA,
    tag=MANAGEMENT,
)
async def list_feature_flags(call: HttpCall) -> RowList:
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
    return RowList(rows, ("name",))


@ROUTES.put(
    {"/api/feature-flags/{name}/enable": "204: all feature flags are enabled."}, tag=ADMINISTRATOR
)
async def enable_feature_flag(call: HttpCall, name: str) -> None:
    """Answer 204 for a feature flag, which is enabled anyway; 404 for an unknown one."""
    if name not in FLAGS:
        raise not_found()


@ROUTES.get({"/api/top/{node}": "No processes: there is no Erlang."}, tag=MONITORING)
async def show_top(call: HttpCall, node: str) -> JsonObject:
    """Return the node with an empty list of Erlang's processes."""
    check_node(node)
    return {"node": node_name(), "processes": []}


@ROUTES.get(
    {"/api/auth/hash_password/{password}": "405: a URL must not have a password."},
    tag=ADMINISTRATOR,
)
async def refuse_password_hash(call: HttpCall, password: str) -> None:
    """Refuse a password in a URL."""
    reason = "a URL must not have a password: PUT /api/users takes it, or its hash"
    raise HttpError(405, reason)
