# SPDX-License-Identifier: Apache-2.0
"""Policies, limits and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.rows import existing_vhost, only, rows_of
from headrace.console.http.answers import Listed
from headrace.console.http.errors import not_found
from headrace.console.http.routes import Route
from headrace.user_tags import MANAGEMENT, POLICYMAKER

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

ACCESS = "access to the virtual host"
POLICY, OPERATOR = "policy", "operator"


async def list_policies(call: HttpCall) -> object:
    """Return the policies of the virtual host, or of all that the user sees."""
    return Listed(await policies(call, POLICY))


async def list_operator_policies(call: HttpCall) -> object:
    """Return the operator policies likewise."""
    return Listed(await policies(call, OPERATOR))


async def show_policy(call: HttpCall) -> object:
    """Return one policy."""
    return only(await policies(call, POLICY), name=call.path["name"])


async def show_operator_policy(call: HttpCall) -> object:
    """Return one operator policy."""
    return only(await policies(call, OPERATOR), name=call.path["name"])


async def policies(call: HttpCall, kind: str) -> list[JsonObject]:
    """Return the policies of a kind as RabbitMQ describes them."""
    fields = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
    rows = await rows_of(call, "list policies")
    return [{name: row[name] for name in fields} for row in rows if row["kind"] == kind]


async def list_vhost_limits(call: HttpCall) -> object:
    """Return the limits of the virtual hosts that the user sees, or of one."""
    vhost = await existing_vhost(call)
    rows = [row for row in await call.rows("list limits") if vhost in (None, row["vhost"])]
    return Listed(rows, ("vhost",))


async def list_user_limits(call: HttpCall) -> object:
    """Return the limits of users: the user's own, or all for an administrator."""
    user = call.path.get("user")
    rows = await call.rows("list limits", of="users")
    return Listed([row for row in rows if user in (None, row["user"])], ("user",))


async def list_parameters(call: HttpCall) -> object:
    """Return no parameters: policies and limits have paths of their own, and nothing else is."""
    await existing_vhost(call)
    return Listed([])


async def show_parameter(call: HttpCall) -> object:
    """Answer that there is no such parameter."""
    await existing_vhost(call)
    raise not_found()


async def list_global_parameters(call: HttpCall) -> object:
    """Return the parameters of the whole broker."""
    return Listed(await call.rows("list global parameters"), ("name",))


async def show_global_parameter(call: HttpCall) -> object:
    """Return one of them."""
    return only(await call.rows("list global parameters"), name=call.path["name"])


ROUTES = (
    *(
        Route("GET", path, handler, MANAGEMENT, ACCESS, summary, paged=True)
        for path, handler, summary in (
            ("/api/policies", list_policies, "The policies."),
            ("/api/policies/{vhost}", list_policies, "The policies of a virtual host."),
            ("/api/operator-policies", list_operator_policies, "The operator policies."),
            (
                "/api/operator-policies/{vhost}",
                list_operator_policies,
                "The operator policies of a virtual host.",
            ),
            ("/api/vhost-limits", list_vhost_limits, "The limits of virtual hosts."),
            ("/api/vhost-limits/{vhost}", list_vhost_limits, "The limits of a virtual host."),
            ("/api/user-limits", list_user_limits, "The limits of users."),
            ("/api/user-limits/{user}", list_user_limits, "The limits of a user."),
        )
    ),
    Route("GET", "/api/policies/{vhost}/{name}", show_policy, MANAGEMENT, ACCESS, "One policy."),
    Route(
        "GET",
        "/api/operator-policies/{vhost}/{name}",
        show_operator_policy,
        MANAGEMENT,
        ACCESS,
        "One operator policy.",
    ),
    *(
        Route("GET", path, list_parameters, POLICYMAKER, ACCESS, summary, paged=True)
        for path, summary in (
            ("/api/parameters", "Always empty: there are no shovels and no federation."),
            ("/api/parameters/{component}", "The parameters of a component; always empty."),
            (
                "/api/parameters/{component}/{vhost}",
                "The parameters of a component in one virtual host; always empty.",
            ),
        )
    ),
    Route(
        "GET",
        "/api/parameters/{component}/{vhost}/{name}",
        show_parameter,
        POLICYMAKER,
        ACCESS,
        "404: there are no parameters.",
    ),
    Route(
        "GET",
        "/api/global-parameters",
        list_global_parameters,
        POLICYMAKER,
        "",
        "The parameters of the whole broker.",
        paged=True,
    ),
    Route(
        "GET",
        "/api/global-parameters/{name}",
        show_global_parameter,
        POLICYMAKER,
        "",
        "One parameter of the whole broker.",
    ),
)
