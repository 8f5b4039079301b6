# SPDX-License-Identifier: Apache-2.0
"""Policies, parameters, the cluster's name and feature flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schema_parts import TEXT
from headrace.console.api.reads.others import FLAGS
from headrace.console.api.reads.rules import OPERATOR_POLICIES, POLICIES
from headrace.console.api.writes.body import INTEGER, TABLE, Body, schema
from headrace.console.http.answers import written
from headrace.console.http.errors import HttpError, not_found
from headrace.console.http.routes import Route, by_path
from headrace.user_tags import ADMINISTRATOR, POLICYMAKER

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

POLICY = "/api/policies/{vhost}/{name}"
OPERATOR = "/api/operator-policies/{vhost}/{name}"
PARAMETER = "/api/parameters/{component}/{vhost}/{name}"
GLOBAL = "/api/global-parameters/{name}"
ACCESS = "access to the virtual host"
OF_KINDS = {POLICIES: "policy", OPERATOR_POLICIES: "operator policy"}  # As operations name them.


async def put_policy(call: HttpCall, vhost: str, name: str) -> Answer:
    """Set a policy."""
    return await put(call, POLICIES, vhost, name)


async def put_operator_policy(call: HttpCall, vhost: str, name: str) -> Answer:
    """Set an operator policy."""
    return await put(call, OPERATOR_POLICIES, vhost, name)


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


async def delete_policy(call: HttpCall, vhost: str, name: str) -> None:
    """Remove a policy."""
    await remove_policy(call, POLICIES, vhost, name)


async def delete_operator_policy(call: HttpCall, vhost: str, name: str) -> None:
    """Remove an operator policy."""
    await remove_policy(call, OPERATOR_POLICIES, vhost, name)


async def remove_policy(call: HttpCall, kind: str, vhost: str, name: str) -> None:
    """Remove a policy of a kind."""
    await call.ask(f"delete {OF_KINDS[kind]}", vhost=vhost, name=name)


async def put_parameter(call: HttpCall, component: str, vhost: str, name: str) -> None:
    """Refuse a parameter of a virtual host, with the broker's reason."""
    body = await Body.of(call)
    value = body.values.get("value")
    await call.ask("put parameter", component=component, vhost=vhost, name=name, value=value)


async def delete_parameter(call: HttpCall, component: str, vhost: str, name: str) -> None:
    """Answer that there is no such parameter."""
    await call.ask("delete parameter", component=component, vhost=vhost, name=name)


async def put_global_parameter(call: HttpCall, name: str) -> Answer:
    """Set a parameter of the whole broker."""
    body = await Body.of(call, "value")
    done = await call.ask("put global parameter", name=name, value=body.values["value"])
    return written(is_new=bool(done["created"]))


async def delete_global_parameter(call: HttpCall, name: str) -> None:
    """Remove a parameter of the whole broker."""
    await call.ask("delete global parameter", name=name)


async def put_cluster_name(call: HttpCall) -> None:
    """Set the name that clients are told."""
    body = await Body.of(call, "name")
    await call.ask("put name", name=body.text("name"))


async def enable_flag(call: HttpCall, name: str) -> None:
    """Accept to enable a feature flag that is enabled anyway."""
    if name not in FLAGS:
        raise not_found()


async def no_reset_of_attempts(call: HttpCall) -> object:
    """Refuse to forget who tried to log in."""
    raise HttpError(405, "attempts to log in are counted while the broker runs, and never reset")


RULE = schema(
    ("pattern", "definition"),
    **{"pattern": TEXT, "definition": TABLE, "priority": INTEGER, "apply-to": TEXT},
)
ROUTES = (
    Route("PUT", POLICY, by_path(put_policy), POLICYMAKER, ACCESS, "Set a policy.", body=RULE),
    Route("DELETE", POLICY, by_path(delete_policy), POLICYMAKER, ACCESS, "Remove a policy."),
    Route(
        "PUT",
        OPERATOR,
        by_path(put_operator_policy),
        ADMINISTRATOR,
        "",
        "Set an operator policy.",
        body=RULE,
    ),
    Route(
        "DELETE",
        OPERATOR,
        by_path(delete_operator_policy),
        ADMINISTRATOR,
        "",
        "Remove an operator policy.",
    ),
    Route(
        "PUT",
        PARAMETER,
        by_path(put_parameter),
        POLICYMAKER,
        ACCESS,
        "400: shovels and federation are not part of Headrace.",
        body=schema(value={}),
    ),
    Route(
        "DELETE", PARAMETER, by_path(delete_parameter), POLICYMAKER, ACCESS, "404: there are none."
    ),
    Route(
        "PUT",
        GLOBAL,
        by_path(put_global_parameter),
        ADMINISTRATOR,
        "",
        "Set a parameter of the whole broker.",
        body=schema(("value",), value={}),
    ),
    Route(
        "DELETE",
        GLOBAL,
        by_path(delete_global_parameter),
        ADMINISTRATOR,
        "",
        "Remove a parameter of the whole broker.",
    ),
    Route(
        "PUT",
        "/api/cluster-name",
        put_cluster_name,
        ADMINISTRATOR,
        "",
        "Set the name of the cluster.",
        body=schema(("name",), name=TEXT),
    ),
    Route(
        "PUT",
        "/api/feature-flags/{name}/enable",
        by_path(enable_flag),
        ADMINISTRATOR,
        "",
        "204: all feature flags are enabled.",
    ),
    *(
        Route("DELETE", path, no_reset_of_attempts, ADMINISTRATOR, "", "405: never reset.")
        for path in ("/api/auth/attempts/{node}", "/api/auth/attempts/{node}/source")
    ),
)
