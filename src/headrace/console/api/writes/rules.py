# SPDX-License-Identifier: Apache-2.0
"""Policies, parameters, the cluster's name and feature flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schema_parts import TEXT
from headrace.console.api.reads.others import FLAGS
from headrace.console.api.writes.body import INTEGER, TABLE, Body, schema
from headrace.console.http.answers import no_content, written
from headrace.console.http.errors import HttpError, not_found
from headrace.console.http.routes import Route
from headrace.user_tags import ADMINISTRATOR, POLICYMAKER

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

POLICY = "/api/policies/{vhost}/{name}"
OPERATOR = "/api/operator-policies/{vhost}/{name}"
PARAMETER = "/api/parameters/{component}/{vhost}/{name}"
GLOBAL = "/api/global-parameters/{name}"
ACCESS = "access to the virtual host"


async def put_policy(call: HttpCall) -> object:
    """Set a policy."""
    return await put(call, "put policy")


async def put_operator_policy(call: HttpCall) -> object:
    """Set an operator policy."""
    return await put(call, "put operator policy")


async def put(call: HttpCall, do: str) -> object:
    """Set a policy of a kind."""
    body = await Body.of(call, "pattern", "definition")
    fields: JsonObject = {
        "pattern": body.text("pattern"),
        "definition": body.table("definition"),
        "priority": body.number("priority"),
        "apply-to": body.text("apply-to") or None,
    }
    done = await call.ask(do, vhost=call.path["vhost"], name=call.path["name"], **fields)
    return written(done)


async def delete_policy(call: HttpCall) -> object:
    """Remove a policy."""
    return await delete(call, "delete policy")


async def delete_operator_policy(call: HttpCall) -> object:
    """Remove an operator policy."""
    return await delete(call, "delete operator policy")


async def delete(call: HttpCall, do: str) -> object:
    """Remove a policy of a kind."""
    await call.ask(do, vhost=call.path["vhost"], name=call.path["name"])
    return no_content()


async def put_parameter(call: HttpCall) -> object:
    """Refuse a parameter of a virtual host, with the broker's reason."""
    body = await Body.of(call)
    await call.ask("put parameter", **parameter(call), value=body.values.get("value"))
    return no_content()


async def delete_parameter(call: HttpCall) -> object:
    """Answer that there is no such parameter."""
    await call.ask("delete parameter", **parameter(call))
    return no_content()


def parameter(call: HttpCall) -> JsonObject:
    """Return the names of a parameter in a path."""
    return {name: call.path[name] for name in ("component", "vhost", "name")}


async def put_global_parameter(call: HttpCall) -> object:
    """Set a parameter of the whole broker."""
    body = await Body.of(call, "value")
    done = await call.ask(
        "put global parameter", name=call.path["name"], value=body.values["value"]
    )
    return written(done)


async def delete_global_parameter(call: HttpCall) -> object:
    """Remove a parameter of the whole broker."""
    await call.ask("delete global parameter", name=call.path["name"])
    return no_content()


async def put_cluster_name(call: HttpCall) -> object:
    """Set the name that clients are told."""
    body = await Body.of(call, "name")
    await call.ask("put name", name=body.text("name"))
    return no_content()


async def enable_flag(call: HttpCall) -> object:
    """Accept to enable a feature flag that is enabled anyway."""
    if call.path["name"] not in FLAGS:
        raise not_found()
    return no_content()


async def no_reset_of_attempts(call: HttpCall) -> object:
    """Refuse to forget who tried to log in."""
    raise HttpError(405, "attempts to log in are counted while the broker runs, and never reset")


RULE = schema(
    ("pattern", "definition"),
    **{"pattern": TEXT, "definition": TABLE, "priority": INTEGER, "apply-to": TEXT},
)
ROUTES = (
    Route("PUT", POLICY, put_policy, POLICYMAKER, ACCESS, "Set a policy.", body=RULE),
    Route("DELETE", POLICY, delete_policy, POLICYMAKER, ACCESS, "Remove a policy."),
    Route(
        "PUT",
        OPERATOR,
        put_operator_policy,
        ADMINISTRATOR,
        "",
        "Set an operator policy.",
        body=RULE,
    ),
    Route(
        "DELETE", OPERATOR, delete_operator_policy, ADMINISTRATOR, "", "Remove an operator policy."
    ),
    Route(
        "PUT",
        PARAMETER,
        put_parameter,
        POLICYMAKER,
        ACCESS,
        "400: shovels and federation are not part of Headrace.",
        body=schema(value={}),
    ),
    Route("DELETE", PARAMETER, delete_parameter, POLICYMAKER, ACCESS, "404: there are none."),
    Route(
        "PUT",
        GLOBAL,
        put_global_parameter,
        ADMINISTRATOR,
        "",
        "Set a parameter of the whole broker.",
        body=schema(("value",), value={}),
    ),
    Route(
        "DELETE",
        GLOBAL,
        delete_global_parameter,
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
        enable_flag,
        ADMINISTRATOR,
        "",
        "204: all feature flags are enabled.",
    ),
    *(
        Route("DELETE", path, no_reset_of_attempts, ADMINISTRATOR, "", "405: never reset.")
        for path in ("/api/auth/attempts/{node}", "/api/auth/attempts/{node}/source")
    ),
)
