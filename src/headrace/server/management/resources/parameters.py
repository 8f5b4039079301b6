# SPDX-License-Identifier: Apache-2.0
"""Parameters of the whole broker; parameters of a virtual host are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import InvalidArgument
from headrace.model.policy.parameters import EVERYWHERE, Key
from headrace.model.policy.rules import (
    CLUSTER_NAME,
    GLOBAL,
    GLOBALS_MAX,
    check_global,
)
from headrace.server.config.json_values import as_json
from headrace.server.definitions.document import check_nested
from headrace.server.definitions.rules import COMPONENTS
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import ADMINISTER, LOOK, POLICY

if TYPE_CHECKING:
    from headrace.management_rows import ParameterRow
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()


async def clear_parameter(call: Call, key: Key) -> JsonLine:
    """Remove a parameter."""
    if key not in call.broker.access.snapshot.parameters:
        where = f" in virtual host '{key.vhost}'" if key.vhost else ""
        call.refuse("not-found", f"there is no {key.component} '{key.name}'{where}")
    await call.broker.accounts.perform(lambda users: users.parameters.clear(*key), call.actor)
    return {}


@operation(
    "put parameter",
    POLICY,
    own_vhost=True,
    fields="`vhost`, `component`, `name`, `value`; always refused, with the reason",
)
def put_parameter(call: Call) -> JsonLine:
    """Refuse to set a parameter of a virtual host.

    All components that this broker knows have operations of their own.
    """
    component = call.text("component")
    if component in COMPONENTS:
        call.refuse("bad-request", f"{component} is set by the operations of policies and limits")
    call.refuse("precondition", f"unknown parameter component '{component}'")


@operation("delete parameter", POLICY, own_vhost=True, fields="`vhost`, `component`, `name`")
def delete_parameter(call: Call) -> JsonLine:
    """Refuse to remove a parameter of a virtual host; see :func:`put_parameter`."""
    component, name = call.text("component"), call.text("name")
    if component in COMPONENTS:
        call.refuse("bad-request", f"{component} is set by the operations of policies and limits")
    call.refuse("not-found", f"there is no {component} '{name}'")


@operation("list global parameters", LOOK, reads=True)
def list_global_parameters(call: Call) -> Steps:
    """List the global parameters; ``cluster_name`` is the name of the cluster."""
    count = 0
    for key, value in list(call.broker.access.snapshot.parameters.items()):
        if key.component != GLOBAL:
            yield None
            continue
        count += 1
        row: ParameterRow = {"name": key.name, "value": as_json(value)}
        yield row
    return {"items": count}


@operation("put global parameter", ADMINISTER, fields="`name`, `value`")
async def put_global_parameter(call: Call) -> JsonLine:
    """Set a global parameter to any JSON value; the broker only stores it."""
    name, value = call.text("name", size_max=255), call.request.get("value")
    check_nested(value, "value")
    return {"created": await set_global(call, name, value)}


@operation("put name", ADMINISTER, fields="`name`: the global parameter `cluster_name`")
async def put_name(call: Call) -> JsonLine:
    """Set the name of the cluster, which clients get in connection.start."""
    await set_global(call, CLUSTER_NAME, call.text("name"))
    return {}


async def set_global(call: Call, name: str, value: object) -> bool:
    """Set a global parameter; return True if it is new."""
    try:
        check_global(name, value)
    except InvalidArgument as error:
        call.refuse("bad-request", error.text)
    key = Key(EVERYWHERE, GLOBAL, name)
    parameters = call.broker.access.snapshot.parameters
    if (
        key not in parameters
        and sum(parameter.component == GLOBAL for parameter in parameters) >= GLOBALS_MAX
    ):
        call.refuse("limit", f"there are {GLOBALS_MAX} global parameters already")
    await call.broker.accounts.perform(
        lambda users: users.parameters.change({key: value}), call.actor
    )
    return key not in parameters


@operation("delete global parameter", ADMINISTER, fields="`name`")
async def delete_global_parameter(call: Call) -> JsonLine:
    """Remove a global parameter."""
    return await clear_parameter(call, Key(EVERYWHERE, GLOBAL, call.text("name")))
