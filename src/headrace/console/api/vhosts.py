# SPDX-License-Identifier: Apache-2.0
"""``/api/vhosts``: listing, adding, changing, protecting and deleting virtual hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common import own_counts
from headrace.console.api.common.body import BOOLEAN, Body, schema
from headrace.console.api.common.lookups import find_sampled
from headrace.console.api.common.node import check_node
from headrace.console.api.common.own_counts import DEAD_LETTERED_SCHEMA
from headrace.console.api.common.samples import byte_counts, depths, message_stats
from headrace.console.api.common.schemas import (
    FLAG,
    OBJECT,
    TEXT,
    TEXTS,
    WHOLE,
    record,
)
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import RowList, created_or_no_content
from headrace.console.http.routes import ACCESS, Routes
from headrace.console.http_errors import HttpError, not_found
from headrace.node_name import node_name
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject
    from headrace.untyped import JsonObject

VHOST = "/api/vhosts/{vhost}"
TAGS: JsonObject = {"type": ["string", "array"], "items": TEXT}
PROTECTION = f"{VHOST}/deletion/protection"
VHOST_SCHEMA = record(
    name=TEXT,
    description=TEXT,
    tags=TEXTS,
    default_queue_type=TEXT,
    tracing=FLAG,
    protected_from_deletion=FLAG,
    cluster_state=OBJECT,
    messages=WHOLE,
    message_stats=OBJECT,
    headrace=record(dead_lettered=DEAD_LETTERED_SCHEMA),
)
ROUTES = Routes()


@ROUTES.get_list(
    {"/api/vhosts": "The virtual hosts."},
    rows=VHOST_SCHEMA,
    tag=MANAGEMENT,
    permission="the virtual hosts that the user sees",
)
async def list_vhosts(call: HttpCall) -> RowList:
    """Return the virtual hosts that the user sees."""
    vhosts = await call.state.vhosts.all()
    visible = [vhost for vhost in vhosts if call.identity.sees_vhost(vhost.text("name"))]
    return RowList([describe_vhost(call, vhost) for vhost in visible], ("name",))


@ROUTES.get({VHOST: "One virtual host."}, tag=MANAGEMENT, permission=ACCESS, answer=VHOST_SCHEMA)
async def show_vhost(call: HttpCall, vhost: str) -> JsonObject:
    """Return one virtual host."""
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    return describe_vhost(call, await find_sampled(call, call.state.vhosts, vhost))


def describe_vhost(call: HttpCall, vhost: SampledObject) -> JsonObject:
    """Return a virtual host as RabbitMQ describes it."""
    row = vhost.row
    kind = row["default_queue_type"]
    return {
        "name": row["name"],
        "description": row["description"],
        "tags": row["tags"],
        "metadata": {
            "description": row["description"],
            "tags": row["tags"],
            "default_queue_type": kind,
        },
        "default_queue_type": kind,
        "protected_from_deletion": row["protected_from_deletion"],
        "tracing": row["tracing"],
        "cluster_state": {vhost.node or node_name(): "running"},
        **depths(vhost, call.query),
        "message_stats": message_stats(vhost, call.query),
        **byte_counts(vhost, call.query),
        own_counts.KEY: {own_counts.DEAD: own_counts.dead_letters([vhost])},
    }


@ROUTES.put(
    {VHOST: "Add or change a virtual host: 201 or 204."},
    tag=ADMINISTRATOR,
    body=schema(
        description=TEXT,
        tags=TAGS,
        default_queue_type=TEXT,
        tracing=BOOLEAN,
        protected_from_deletion=BOOLEAN,
    ),
)
async def put_vhost(call: HttpCall, vhost: str) -> Answer:
    """Add or change a virtual host; a field that the body lacks keeps its value."""
    body = await Body.read(call)
    tags = body.texts("tags")
    description, default_queue_type = (
        None if body.values.get(name) is None else body.text(name)
        for name in ("description", "default_queue_type")
    )
    is_new = await set_vhost(
        call,
        vhost,
        description=description,
        tags=tags,
        default_queue_type=default_queue_type,
        tracing=body.flag("tracing"),
        protected_from_deletion=body.flag("protected_from_deletion"),
    )
    return created_or_no_content(is_new=is_new)


async def set_vhost(
    call: HttpCall,
    vhost: str,
    *,
    description: str | None,
    tags: list[str] | None,
    default_queue_type: str | None,
    tracing: bool | None,
    protected_from_deletion: bool | None,
) -> bool:
    """Add or change a virtual host; return False if it exists. None keeps a value."""
    done = await call.broker.ask(
        "put vhost",
        name=vhost,
        description=description,
        default_queue_type=default_queue_type,
        tags=tags,
        tracing=tracing,
        protected_from_deletion=protected_from_deletion,
    )
    return bool(done["created"])


@ROUTES.delete(
    {VHOST: "Delete a virtual host with all its objects; 412 if it is protected."},
    tag=ADMINISTRATOR,
)
async def remove_vhost(call: HttpCall, vhost: str) -> None:
    """Delete a virtual host; 412 if it is protected."""
    try:
        await call.broker.ask("delete vhost", name=vhost)
    except OperationRefused as error:
        if error.code == "precondition":
            raise HttpError(412, error.text) from None
        raise


@ROUTES.post({PROTECTION: "Protect a virtual host from deletion."}, tag=ADMINISTRATOR)
async def protect_vhost(call: HttpCall, vhost: str) -> None:
    """Protect a virtual host from deletion."""
    await set_protection(call, vhost, True)


@ROUTES.delete(
    {PROTECTION: "End the protection of a virtual host from deletion."}, tag=ADMINISTRATOR
)
async def unprotect_vhost(call: HttpCall, vhost: str) -> None:
    """End the protection of a virtual host from deletion."""
    await set_protection(call, vhost, False)


async def set_protection(call: HttpCall, vhost: str, value: bool) -> None:
    """Protect a virtual host from deletion, or end its protection."""
    await call.broker.ask("show vhost", vhost=vhost)
    await call.broker.ask("put vhost", name=vhost, protected_from_deletion=value)


@ROUTES.post(
    {f"{VHOST}/start/{{node}}": "204: a virtual host starts at its owner by itself."},
    tag=ADMINISTRATOR,
)
async def start_vhost(call: HttpCall, vhost: str, node: str) -> None:
    """Answer 204 for a virtual host that exists; it runs at its owner already."""
    await call.broker.ask("show vhost", vhost=vhost)
    check_node(node)
