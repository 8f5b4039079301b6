# SPDX-License-Identifier: Apache-2.0
"""Policies and operator policies, limits of virtual hosts and users, and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import INTEGER, TABLE, Body, schema
from headrace.console.api.common.rows import existing_vhost, only, rows_of
from headrace.console.api.common.schema_parts import TEXT
from headrace.console.http.answers import Listed, written
from headrace.console.http.errors import not_found
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, POLICYMAKER

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

# The kinds of policies, as the broker's list has them.
POLICIES, OPERATOR_POLICIES = "policy", "operator"
POLICY = "/api/policies/{vhost}/{name}"
OPERATOR = "/api/operator-policies/{vhost}/{name}"
PARAMETER = "/api/parameters/{component}/{vhost}/{name}"
GLOBAL = "/api/global-parameters/{name}"
OF_KINDS = {POLICIES: "policy", OPERATOR_POLICIES: "operator policy"}  # As operations name them.
RULE = schema(
    ("pattern", "definition"),
    **{"pattern": TEXT, "definition": TABLE, "priority": INTEGER, "apply-to": TEXT},
)
VHOST_LIMIT = "/api/vhost-limits/{vhost}/{name}"
USER_LIMIT = "/api/user-limits/{user}/{name}"
VALUE = schema(("value",), value=INTEGER)
ROUTES = Routes()


# --- Policies ------------------------------------------------------------------------------------


@ROUTES.get(
    {"/api/policies": "The policies.", "/api/policies/{vhost}": "The policies of a virtual host."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_policies(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the policies of a virtual host, or of all that the user sees."""
    return Listed(await policies(call, POLICIES, vhost))


@ROUTES.get(
    {
        "/api/operator-policies": "The operator policies.",
        "/api/operator-policies/{vhost}": "The operator policies of a virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_operator_policies(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the operator policies of a virtual host, or of all that the user sees."""
    return Listed(await policies(call, OPERATOR_POLICIES, vhost))


async def policies(call: HttpCall, kind: str, vhost: str | None = None) -> list[JsonObject]:
    """Return the policies of a kind as RabbitMQ describes them."""
    fields = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
    rows = await rows_of(call, "list policies", vhost)
    return [{name: row[name] for name in fields} for row in rows if row["kind"] == kind]


# --- Limits --------------------------------------------------------------------------------------


@ROUTES.get(
    {
        "/api/vhost-limits": "The limits of virtual hosts.",
        "/api/vhost-limits/{vhost}": "The limits of a virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_vhost_limits(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the limits of the virtual hosts that the user sees, or of one."""
    vhost = await existing_vhost(call, vhost)
    rows = [row for row in await call.rows("list limits") if vhost in (None, row["vhost"])]
    return Listed(rows, ("vhost",))


@ROUTES.get(
    {
        "/api/user-limits": "The limits of users.",
        "/api/user-limits/{user}": "The limits of a user.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_user_limits(call: HttpCall, user: str | None = None) -> Listed:
    """Return the limits of users: the user's own, or all for an administrator."""
    rows = await call.rows("list limits", of="users")
    return Listed([row for row in rows if user in (None, row["user"])], ("user",))


@ROUTES.put({VHOST_LIMIT: "Set a limit."}, tag=ADMINISTRATOR, body=VALUE)
async def put_vhost_limit(call: HttpCall, vhost: str, name: str) -> None:
    """Set one limit of a virtual host; RabbitMQ answers 204 in any case."""
    await set_limit(call, name, await limit_in(call), vhost=vhost)


@ROUTES.delete({VHOST_LIMIT: "Remove a limit."}, tag=ADMINISTRATOR)
async def delete_vhost_limit(call: HttpCall, vhost: str, name: str) -> None:
    """Remove one limit of a virtual host."""
    await remove_limit(call, name, vhost=vhost)


@ROUTES.put({USER_LIMIT: "Set a limit."}, tag=ADMINISTRATOR, body=VALUE)
async def put_user_limit(call: HttpCall, user: str, name: str) -> None:
    """Set one limit of a user; RabbitMQ answers 204 in any case."""
    await set_limit(call, name, await limit_in(call), user=user)


@ROUTES.delete({USER_LIMIT: "Remove a limit."}, tag=ADMINISTRATOR)
async def delete_user_limit(call: HttpCall, user: str, name: str) -> None:
    """Remove one limit of a user."""
    await remove_limit(call, name, user=user)


async def limit_in(call: HttpCall) -> int | None:
    """Return the limit that a body has."""
    return (await Body.of(call, "value")).number("value")


async def set_limit(
    call: HttpCall,
    name: str,
    value: int | None,
    *,
    vhost: str | None = None,
    user: str | None = None,
) -> None:
    """Set one limit of a virtual host or of a user."""
    await call.ask("put limit", vhost=vhost, user=user, name=name, value=value)


async def remove_limit(
    call: HttpCall, name: str, *, vhost: str | None = None, user: str | None = None
) -> None:
    """Remove one limit of a virtual host or of a user."""
    await call.ask("delete limit", vhost=vhost, user=user, name=name)


# --- One policy ----------------------------------------------------------------------------------


@ROUTES.get({POLICY: "One policy."}, tag=MANAGEMENT, permission=ACCESS)
async def show_policy(call: HttpCall, vhost: str, name: str) -> JsonObject:
    """Return one policy."""
    return await policy(call, POLICIES, vhost, name)


@ROUTES.get({OPERATOR: "One operator policy."}, tag=MANAGEMENT, permission=ACCESS)
async def show_operator_policy(call: HttpCall, vhost: str, name: str) -> JsonObject:
    """Return one operator policy."""
    return await policy(call, OPERATOR_POLICIES, vhost, name)


async def policy(call: HttpCall, kind: str, vhost: str, name: str) -> JsonObject:
    """Return one policy of a kind."""
    return only(await policies(call, kind, vhost), name=name)


@ROUTES.put({POLICY: "Set a policy."}, tag=POLICYMAKER, permission=ACCESS, body=RULE)
async def put_policy(call: HttpCall, vhost: str, name: str) -> Answer:
    """Set a policy."""
    return await put(call, POLICIES, vhost, name)


@ROUTES.delete({POLICY: "Remove a policy."}, tag=POLICYMAKER, permission=ACCESS)
async def delete_policy(call: HttpCall, vhost: str, name: str) -> None:
    """Remove a policy."""
    await remove_policy(call, POLICIES, vhost, name)


@ROUTES.put({OPERATOR: "Set an operator policy."}, tag=ADMINISTRATOR, body=RULE)
async def put_operator_policy(call: HttpCall, vhost: str, name: str) -> Answer:
    """Set an operator policy."""
    return await put(call, OPERATOR_POLICIES, vhost, name)


@ROUTES.delete({OPERATOR: "Remove an operator policy."}, tag=ADMINISTRATOR)
async def delete_operator_policy(call: HttpCall, vhost: str, name: str) -> None:
    """Remove an operator policy."""
    await remove_policy(call, OPERATOR_POLICIES, vhost, name)


async def put(call: HttpCall, kind: str, vhost: str, name: str) -> Answer:
    """Set a policy of a kind."""
    body = await Body.of(call, "pattern", "definition")
    is_new = await set_policy(
        call,
        kind,
        vhost,
        name,
        pattern=body.text("pattern"),
        definition=body.table("definition"),
        priority=body.number("priority"),
        apply_to=body.text("apply-to"),
    )
    return written(is_new=is_new)


async def set_policy(
    call: HttpCall,
    kind: str,
    vhost: str,
    name: str,
    *,
    pattern: str,
    definition: JsonObject,
    priority: int | None,
    apply_to: str,
) -> bool:
    """Set a policy of a kind; return False if it exists."""
    fields: JsonObject = {
        "pattern": pattern,
        "definition": definition,
        "priority": priority,
        "apply-to": apply_to or None,
    }
    done = await call.ask(f"put {OF_KINDS[kind]}", vhost=vhost, name=name, **fields)
    return bool(done["created"])


async def remove_policy(call: HttpCall, kind: str, vhost: str, name: str) -> None:
    """Remove a policy of a kind."""
    await call.ask(f"delete {OF_KINDS[kind]}", vhost=vhost, name=name)


# --- Parameters ----------------------------------------------------------------------------------


@ROUTES.get(
    {
        "/api/parameters": "Always empty: there are no shovels and no federation.",
        "/api/parameters/{component}": "The parameters of a component; always empty.",
        "/api/parameters/{component}/{vhost}": "The parameters of a component in one virtual host; "
        "always empty.",
    },
    tag=POLICYMAKER,
    permission=ACCESS,
    paged=True,
)
async def list_parameters(call: HttpCall, component: str = "", vhost: str | None = None) -> Listed:
    """Return no parameters: policies and limits have paths of their own, and nothing else is."""
    await existing_vhost(call, vhost)
    return Listed([])


@ROUTES.get({PARAMETER: "404: there are no parameters."}, tag=POLICYMAKER, permission=ACCESS)
async def show_parameter(call: HttpCall, component: str, vhost: str, name: str) -> None:
    """Answer that there is no such parameter."""
    await existing_vhost(call, vhost)
    raise not_found()


@ROUTES.put(
    {PARAMETER: "400: shovels and federation are not part of Headrace."},
    tag=POLICYMAKER,
    permission=ACCESS,
    body=schema(value={}),
)
async def put_parameter(call: HttpCall, component: str, vhost: str, name: str) -> None:
    """Refuse a parameter of a virtual host, with the broker's reason."""
    body = await Body.of(call)
    value = body.values.get("value")
    await call.ask("put parameter", component=component, vhost=vhost, name=name, value=value)


@ROUTES.delete({PARAMETER: "404: there are none."}, tag=POLICYMAKER, permission=ACCESS)
async def delete_parameter(call: HttpCall, component: str, vhost: str, name: str) -> None:
    """Answer that there is no such parameter."""
    await call.ask("delete parameter", component=component, vhost=vhost, name=name)


@ROUTES.get(
    {"/api/global-parameters": "The parameters of the whole broker."}, tag=POLICYMAKER, paged=True
)
async def list_global_parameters(call: HttpCall) -> Listed:
    """Return the parameters of the whole broker."""
    return Listed(await call.rows("list global parameters"), ("name",))


@ROUTES.get({GLOBAL: "One parameter of the whole broker."}, tag=POLICYMAKER)
async def show_global_parameter(call: HttpCall, name: str) -> JsonObject:
    """Return one of them."""
    return only(await call.rows("list global parameters"), name=name)


@ROUTES.put(
    {GLOBAL: "Set a parameter of the whole broker."},
    tag=ADMINISTRATOR,
    body=schema(("value",), value={}),
)
async def put_global_parameter(call: HttpCall, name: str) -> Answer:
    """Set a parameter of the whole broker."""
    body = await Body.of(call, "value")
    done = await call.ask("put global parameter", name=name, value=body.values["value"])
    return written(is_new=bool(done["created"]))


@ROUTES.delete({GLOBAL: "Remove a parameter of the whole broker."}, tag=ADMINISTRATOR)
async def delete_global_parameter(call: HttpCall, name: str) -> None:
    """Remove a parameter of the whole broker."""
    await call.ask("delete global parameter", name=name)
