# SPDX-License-Identifier: Apache-2.0
"""Policies, limits and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.rows import existing_vhost, only, rows_of
from headrace.console.http.answers import Listed
from headrace.console.http.errors import not_found
from headrace.console.http.routes import Route, by_path
from headrace.user_tags import MANAGEMENT, POLICYMAKER

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

ACCESS = "access to the virtual host"
POLICIES, OPERATOR_POLICIES = (
    "policy",
    "operator",
)  # The kinds of policies, as the broker's list has them.


async def list_policies(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the policies of a virtual host, or of all that the user sees."""
    return Listed(await policies(call, POLICIES, vhost))


async def list_operator_policies(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the operator policies of a virtual host, or of all that the user sees."""
    return Listed(await policies(call, OPERATOR_POLICIES, vhost))


async def show_policy(call: HttpCall, vhost: str, name: str) -> JsonObject:
    """Return one policy."""
    return await policy(call, POLICIES, vhost, name)


async def show_operator_policy(call: HttpCall, vhost: str, name: str) -> JsonObject:
    """Return one operator policy."""
    return await policy(call, OPERATOR_POLICIES, vhost, name)


async def policy(call: HttpCall, kind: str, vhost: str, name: str) -> JsonObject:
    """Return one policy of a kind."""
    return only(await policies(call, kind, vhost), name=name)


async def policies(call: HttpCall, kind: str, vhost: str | None = None) -> list[JsonObject]:
    """Return the policies of a kind as RabbitMQ describes them."""
    fields = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
    rows = await rows_of(call, "list policies", vhost)
    return [{name: row[name] for name in fields} for row in rows if row["kind"] == kind]


async def list_vhost_limits(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the limits of the virtual hosts that the user sees, or of one."""
    vhost = await existing_vhost(call, vhost)
    rows = [row for row in await call.rows("list limits") if vhost in (None, row["vhost"])]
    return Listed(rows, ("vhost",))


async def list_user_limits(call: HttpCall, user: str | None = None) -> Listed:
    """Return the limits of users: the user's own, or all for an administrator."""
    rows = await call.rows("list limits", of="users")
    return Listed([row for row in rows if user in (None, row["user"])], ("user",))


async def list_parameters(call: HttpCall, component: str = "", vhost: str | None = None) -> Listed:
    """Return no parameters: policies and limits have paths of their own, and nothing else is."""
    await existing_vhost(call, vhost)
    return Listed([])


async def show_parameter(call: HttpCall, component: str, vhost: str, name: str) -> None:
    """Answer that there is no such parameter."""
    await existing_vhost(call, vhost)
    raise not_found()


async def list_global_parameters(call: HttpCall) -> Listed:
    """Return the parameters of the whole broker."""
    return Listed(await call.rows("list global parameters"), ("name",))


async def show_global_parameter(call: HttpCall, name: str) -> JsonObject:
    """Return one of them."""
    return only(await call.rows("list global parameters"), name=name)


ROUTES = (
    *(
        Route("GET", path, handler, MANAGEMENT, ACCESS, summary, paged=True)
        for path, handler, summary in (
            ("/api/policies", by_path(list_policies), "The policies."),
            ("/api/policies/{vhost}", by_path(list_policies), "The policies of a virtual host."),
            ("/api/operator-policies", by_path(list_operator_policies), "The operator policies."),
            (
                "/api/operator-policies/{vhost}",
                by_path(list_operator_policies),
                "The operator policies of a virtual host.",
            ),
            ("/api/vhost-limits", by_path(list_vhost_limits), "The limits of virtual hosts."),
            (
                "/api/vhost-limits/{vhost}",
                by_path(list_vhost_limits),
                "The limits of a virtual host.",
            ),
            ("/api/user-limits", by_path(list_user_limits), "The limits of users."),
            ("/api/user-limits/{user}", by_path(list_user_limits), "The limits of a user."),
        )
    ),
    Route(
        "GET",
        "/api/policies/{vhost}/{name}",
        by_path(show_policy),
        MANAGEMENT,
        ACCESS,
        "One policy.",
    ),
    Route(
        "GET",
        "/api/operator-policies/{vhost}/{name}",
        by_path(show_operator_policy),
        MANAGEMENT,
        ACCESS,
        "One operator policy.",
    ),
    *(
        Route("GET", path, by_path(list_parameters), POLICYMAKER, ACCESS, summary, paged=True)
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
        by_path(show_parameter),
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
        by_path(show_global_parameter),
        POLICYMAKER,
        "",
        "One parameter of the whole broker.",
    ),
)
