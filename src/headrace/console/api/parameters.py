# SPDX-License-Identifier: Apache-2.0
"""``/api/parameters``, which are always empty, and ``/api/global-parameters``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import Body, schema
from headrace.console.api.common.lookups import existing_vhost, find_row
from headrace.console.api.common.schemas import NAMED
from headrace.console.broker.lists import GLOBAL_PARAMETERS
from headrace.console.http.answers import RowList, created_or_no_content
from headrace.console.http.routes import ACCESS, Routes
from headrace.console.http_errors import not_found
from headrace.user_tags import ADMINISTRATOR, POLICYMAKER

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.management_rows import ParameterRow

PARAMETER = "/api/parameters/{component}/{vhost}/{name}"
GLOBAL = "/api/global-parameters/{name}"
ROUTES = Routes()


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
async def list_parameters(call: HttpCall, component: str = "", vhost: str | None = None) -> RowList:
    """Return no parameters: policies and limits have paths of their own."""
    await existing_vhost(call, vhost)
    return RowList([])


@ROUTES.get({PARAMETER: "404: there are no parameters."}, tag=POLICYMAKER, permission=ACCESS)
async def show_parameter(call: HttpCall, component: str, vhost: str, name: str) -> None:
    """Answer 404: there are no parameters."""
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
    body = await Body.read(call)
    value = body.values.get("value")
    await call.broker.ask("put parameter", component=component, vhost=vhost, name=name, value=value)


@ROUTES.delete({PARAMETER: "404: there are no parameters."}, tag=POLICYMAKER, permission=ACCESS)
async def remove_parameter(call: HttpCall, component: str, vhost: str, name: str) -> None:
    """Answer 404: there are no parameters."""
    await call.broker.ask("delete parameter", component=component, vhost=vhost, name=name)


@ROUTES.get_list(
    {"/api/global-parameters": "The parameters of the whole broker."}, rows=NAMED, tag=POLICYMAKER
)
async def list_global_parameters(call: HttpCall) -> RowList:
    """Return the parameters of the whole broker."""
    return RowList(await call.broker.rows(GLOBAL_PARAMETERS), ("name",))


@ROUTES.get({GLOBAL: "One parameter of the whole broker."}, tag=POLICYMAKER, answer=NAMED)
async def show_global_parameter(call: HttpCall, name: str) -> ParameterRow:
    """Return one parameter of the whole broker."""
    return find_row(await call.broker.rows(GLOBAL_PARAMETERS), name=name)


@ROUTES.put(
    {GLOBAL: "Set a parameter of the whole broker."},
    tag=ADMINISTRATOR,
    body=schema(("value",), value={}),
)
async def put_global_parameter(call: HttpCall, name: str) -> Answer:
    """Set a parameter of the whole broker."""
    body = await Body.read(call)
    done = await call.broker.ask("put global parameter", name=name, value=body.values["value"])
    return created_or_no_content(is_new=bool(done["created"]))


@ROUTES.delete({GLOBAL: "Remove a parameter of the whole broker."}, tag=ADMINISTRATOR)
async def remove_global_parameter(call: HttpCall, name: str) -> None:
    """Remove a parameter of the whole broker."""
    await call.broker.ask("delete global parameter", name=name)
