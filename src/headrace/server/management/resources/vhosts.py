# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts and their metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.policy.accounts import check_name
from headrace.model.policy.rules import metadata_key
from headrace.server.management.call import Row, is_internal, live_queues
from headrace.server.management.fields import read_fields
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.definitions import put_element
from headrace.server.management.resources.tracing import set_tracing
from headrace.user_tags import ADMINISTER, LOOK

if TYPE_CHECKING:
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.server.management.managed_broker import ManagedBroker

operation = OperationTable()

VHOST_FIELDS = (
    *("description", "tags", "default_queue_type", "unknown_arguments"),
    "protected_from_deletion",
)
ALL_PERMISSIONS = dict.fromkeys(("configure", "write", "read"), ".*")


@operation("list vhosts", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_vhosts(call: Call) -> Steps:
    """List the virtual hosts with the counts of their objects."""
    count = 0
    for vhost in call.vhosts():
        count += 1
        queue_count = ready = unacked = size = connections = 0
        for queue in live_queues(vhost):  # Each is a step, as there may be many.
            if not is_internal(queue):
                queue_count += 1
                ready += queue.ready_count
                unacked += queue.unacked_count
                size += queue.ready_bytes
            yield None
        for transport in list(call.broker.transports):
            connections += transport.connection.vhost is vhost
            yield None
        yield {
            "name": vhost.name,
            "frozen": vhost.is_frozen,
            "queues": queue_count,
            "ready": ready,
            "unacked": unacked,
            "bytes": size,
            "connections": connections,
            "exchanges": len(vhost.exchanges),
            "definitions_bytes": vhost.definition_memory,
            "full": bool(vhost.store.full),
            **describe_metadata(call.broker, vhost),
        }
    return {"items": count}


def describe_metadata(broker: ManagedBroker, vhost: VirtualHost) -> Row:
    """Return the metadata of a virtual host, which operators set."""
    metadata = broker.access.snapshot.parameters.get(metadata_key(vhost.name), {})
    return {
        "description": metadata.get("description", ""),
        "tags": metadata.get("tags", []),
        "default_queue_type": vhost.rules.default_queue_type,
        "protected_from_deletion": bool(metadata.get("protected_from_deletion")),
        "tracing": vhost.tracer is not None,
    }


@operation("show vhost", LOOK, reads=True, fields="`vhost`")
def show_vhost(call: Call) -> JsonLine:
    """Return the metadata of one virtual host."""
    vhost = call.vhost()
    return {
        "name": vhost.name,
        **describe_metadata(call.broker, vhost),
        "unknown_arguments": vhost.rules.unknown_arguments,
    }


def read_vhost_name(call: Call) -> str:
    """Return the name in ``vhost``, or the default one.

    Raises:
        OperationRefused: no such virtual host exists.
    """
    name = call.text("vhost", call.broker.settings.default_vhost)
    if name not in call.broker.access.snapshot.vhosts:
        call.refuse("not-found", f"there is no virtual host '{name}'")
    return name


@operation(
    "put vhost",
    ADMINISTER,
    fields="`name`, `description`, `tags`, `default_queue_type`, `unknown_arguments`, `tracing`, "
    "`protected_from_deletion`",
    note="a user who adds one gets all permissions in it",
)
async def put_vhost(call: Call) -> JsonLine:
    """Add or change a virtual host; ``tracing`` switches its tracing.

    As in RabbitMQ, a user who adds a virtual host gets all permissions in it.
    """
    name = call.text("name")
    check_name("virtual host", name)
    tracing = call.flag("tracing") if "tracing" in call.request else None
    metadata = read_fields(call, *VHOST_FIELDS)
    is_new = await put_element(call, "vhosts", {"name": name, "metadata": metadata})
    if is_new and call.user is not None and call.broker.access.account(call.user.name) is not None:
        element: dict[str, object] = {"user": call.user.name, "vhost": name, **ALL_PERMISSIONS}
        await put_element(call, "permissions", element)
    vhost = call.broker.vhosts.get(name)
    if tracing is not None and vhost is not None:
        with call.acting():
            set_tracing(call, vhost, tracing)
    return {"created": is_new}


@operation("delete vhost", ADMINISTER, fields="`name`")
async def delete_vhost(call: Call) -> JsonLine:
    """Delete a virtual host with everything in it, unless it is protected.

    ``AccountChanges`` applies the deletion to the running broker (``VirtualHosts.drop``).
    """
    name = call.text("name")
    snapshot = call.broker.access.snapshot
    if name not in snapshot.vhosts:
        call.refuse("not-found", f"there is no virtual host '{name}'")
    if snapshot.parameters.get(metadata_key(name), {}).get("protected_from_deletion"):
        call.refuse("precondition", f"virtual host '{name}' is protected from deletion")
    await call.broker.accounts.perform(lambda users: users.delete_vhost(name), call.actor)
    return {}
