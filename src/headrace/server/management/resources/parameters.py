# SPDX-License-Identifier: Apache-2.0
"""Operations on policies, limits, and parameters of the whole broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import InvalidArgument
from headrace.model.policy.parameters import EVERYWHERE, Key
from headrace.model.policy.policy import COMPONENT, OPERATOR_COMPONENT
from headrace.model.policy.rules import (
    CLUSTER_NAME,
    GLOBAL,
    GLOBALS_MAX,
    LIMITS_NAME,
    USER_LIMITS,
    VHOST_LIMITS,
    check_global,
    check_parameter,
)
from headrace.server.config.json_values import as_json
from headrace.server.definitions.document import check_nested
from headrace.server.definitions.rules import COMPONENTS
from headrace.server.management.fields import fields_of
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.definitions import put_element
from headrace.server.management.resources.users import known_user
from headrace.server.management.resources.vhosts import known_vhost
from headrace.user_tags import ADMINISTER, LOOK, POLICY

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.server.management.call import Answered, Call, Steps
    from headrace.store.catalog.users import UserDirectory

operation = OperationTable()


# --- Policies -------------------------------------------------------------------------------------


@operation(
    "put policy",
    POLICY,
    own_vhost=True,
    fields="`vhost`, `name`, `pattern`, `definition`, `priority`, `apply-to`",
)
async def put_policy(call: Call) -> Answered:
    """Set a policy; ``name``, ``pattern``, ``definition``, ``priority``, ``apply-to``."""
    value = fields_of(call, "name", "pattern", "definition", "priority", "apply-to")
    return {"created": await put_element(call, "policies", {**value, "vhost": known_vhost(call)})}


@operation("put operator policy", ADMINISTER, fields="as `put policy`")
async def put_operator_policy(call: Call) -> Answered:
    """Set an operator policy, which no policy can exceed."""
    value = fields_of(call, "pattern", "definition", "priority", "apply-to")
    element: dict[str, object] = {
        "vhost": known_vhost(call),
        "component": OPERATOR_COMPONENT,
        "name": call.text("name"),
        "value": value,
    }
    return {"created": await put_element(call, "parameters", element)}


@operation("delete policy", POLICY, own_vhost=True, fields="`vhost`, `name`")
async def delete_policy(call: Call) -> Answered:
    """Remove a policy."""
    return await clear(call, Key(known_vhost(call), COMPONENT, call.text("name")))


@operation("delete operator policy", ADMINISTER, fields="`vhost`, `name`")
async def delete_operator_policy(call: Call) -> Answered:
    """Remove an operator policy."""
    return await clear(call, Key(known_vhost(call), OPERATOR_COMPONENT, call.text("name")))


async def clear(call: Call, key: Key) -> Answered:
    """Remove a parameter."""
    if key not in call.broker.access.snapshot.parameters:
        where = f" in virtual host '{key.vhost}'" if key.vhost else ""
        call.refuse("not-found", f"there is no {key.component} '{key.name}'{where}")
    await call.broker.accounts.perform(lambda users: users.parameters.clear(*key), call.actor)
    return {}


# --- Limits ---------------------------------------------------------------------------------------


@operation("put limit", ADMINISTER, fields="`vhost` or `user`, `name`, `value`")
async def put_limit(call: Call) -> Answered:
    """Set one limit of a virtual host, or of a ``user``."""
    key, name = limits_of(call), call.text("name")
    value = call.number("value", least=-1)
    try:
        check_parameter(key.component, key.name, {name: value})
    except InvalidArgument as error:
        call.refuse("bad-request", error.text)

    def set_one(limits: dict[str, object]) -> None:
        limits[name] = value

    return await change_limits(call, key, set_one)


@operation("delete limit", ADMINISTER, fields="`vhost` or `user`, `name`")
async def delete_limit(call: Call) -> Answered:
    """Remove one limit of a virtual host, or of a ``user``."""
    key, name = limits_of(call), call.text("name")
    if name not in call.broker.access.snapshot.parameters.get(key, {}):
        call.refuse("not-found", f"there is no limit '{name}'")

    def remove_one(limits: dict[str, object]) -> None:
        limits.pop(name, None)

    return await change_limits(call, key, remove_one)


def limits_of(call: Call) -> Key:
    """Return the key of the limits that a request is about."""
    if call.request.get("user") is None:
        return Key(known_vhost(call), VHOST_LIMITS, LIMITS_NAME)
    return Key(EVERYWHERE, USER_LIMITS, known_user(call))


async def change_limits(
    call: Call, key: Key, change: Callable[[dict[str, object]], None]
) -> Answered:
    """Change limits on the thread of the file, so that none of two changes is lost."""

    def work(users: UserDirectory) -> bool:
        before = users.parameters.all().get(key)
        limits = dict(before or {})
        change(limits)
        if limits:
            users.parameters.change({key: limits})
        elif before is not None:
            users.parameters.clear(*key)
        return before is None

    return {"created": await call.broker.accounts.perform(work, call.actor)}


@operation("list limits", LOOK, fields="`vhost`, `of`: `vhosts` or `users`")
def list_limits(call: Call) -> Steps:
    """List the limits of virtual hosts, or with ``of`` = users those of users."""
    of_users = call.text("of", "vhosts") == "users"
    component = USER_LIMITS if of_users else VHOST_LIMITS
    count = 0
    for key, value in list(call.broker.access.snapshot.parameters.items()):
        name = key.name if of_users else key.vhost
        own = call.user is not None and call.user.name == name
        shown = call.administers or own if of_users else call.sees_vhost(name)
        if key.component != component or not shown:
            yield None
            continue
        count += 1
        yield {"user" if of_users else "vhost": name, "value": as_json(value)}
    return {"items": count}


# --- Parameters -----------------------------------------------------------------------------------


@operation(
    "put parameter",
    POLICY,
    own_vhost=True,
    fields="`vhost`, `component`, `name`, `value`; always refused, with the reason",
)
def put_parameter(call: Call) -> Answered:
    """Refuse a parameter of a virtual host: the components here have operations of their own."""
    component = call.text("component")
    if component in COMPONENTS:
        call.refuse("bad-request", f"{component} is set by the operations of policies and limits")
    call.refuse("precondition", f"unknown parameter component '{component}'")


@operation("delete parameter", POLICY, own_vhost=True, fields="`vhost`, `component`, `name`")
def delete_parameter(call: Call) -> Answered:
    """Refuse likewise."""
    component, name = call.text("component"), call.text("name")
    if component in COMPONENTS:
        call.refuse("bad-request", f"{component} is set by the operations of policies and limits")
    call.refuse("not-found", f"there is no {component} '{name}'")


@operation("put global parameter", ADMINISTER, fields="`name`, `value`")
async def put_global_parameter(call: Call) -> Answered:
    """Set a parameter of the whole broker: any value of JSON, kept for clients."""
    name, value = call.text("name", octets_max=255), call.request.get("value")
    check_nested(value, "value")
    return {"created": await set_global(call, name, value)}


@operation("put name", ADMINISTER, fields="`name`: the global parameter `cluster_name`")
async def put_name(call: Call) -> Answered:
    """Set the name of the cluster that clients are told."""
    await set_global(call, CLUSTER_NAME, call.text("name"))
    return {}


async def set_global(call: Call, name: str, value: object) -> bool:
    """Set a parameter of the whole broker; return True if it is new."""
    try:
        check_global(name, value)
    except InvalidArgument as error:
        call.refuse("bad-request", error.text)
    key = Key(EVERYWHERE, GLOBAL, name)
    known = call.broker.access.snapshot.parameters
    if key not in known and sum(one.component == GLOBAL for one in known) >= GLOBALS_MAX:
        call.refuse("limit", f"there are {GLOBALS_MAX} global parameters already")
    await call.broker.accounts.perform(
        lambda users: users.parameters.change({key: value}), call.actor
    )
    return key not in known


@operation("delete global parameter", ADMINISTER, fields="`name`")
async def delete_global_parameter(call: Call) -> Answered:
    """Remove a parameter of the whole broker."""
    return await clear(call, Key(EVERYWHERE, GLOBAL, call.text("name")))


@operation("list global parameters", LOOK)
def list_global_parameters(call: Call) -> Steps:
    """List the parameters of the whole broker; the cluster's name is ``cluster_name``."""
    count = 0
    for key, value in list(call.broker.access.snapshot.parameters.items()):
        if key.component != GLOBAL:
            yield None
            continue
        count += 1
        yield {"name": key.name, "value": as_json(value)}
    return {"items": count}
