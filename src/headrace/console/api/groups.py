# SPDX-License-Identifier: Apache-2.0
"""Groups of stream readers: their lags, and setting or deleting their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import Body, schema
from headrace.console.api.common.lookups import named_rows
from headrace.console.broker.lists import GROUPS
from headrace.console.http.answers import Answer, Listed
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

WORDS = ("first", "last", "next")  # Positions besides offsets.
GROUP = "/api/headrace/groups/{vhost}/{stream}/{group}"
ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/groups": "Groups of stream readers, with their lag.",
        "/api/headrace/groups/{vhost}": "The stream groups of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_groups(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the groups of stream readers with their lag."""
    return await named_rows(call, GROUPS, vhost, "group")


@ROUTES.put(
    {GROUP: "Set the position of a group: an offset, first, last or next."},
    tag=MANAGEMENT,
    permission="read on the stream",
    body=schema(("position",), position={"type": ["integer", "string"]}),
)
async def put_group(call: HttpCall, vhost: str, stream: str, group: str) -> Answer:
    """Set the position of a group."""
    position = position_in(await Body.of(call))
    return Answer(200, await set_group(call, vhost, stream, group, position))


def position_in(body: Body) -> object:
    """Return a position: an offset, or a word. The broker refuses unknown ones."""
    position = body.values["position"]
    if isinstance(position, str) and position not in WORDS:
        return body.number("position")
    return position


async def set_group(
    call: HttpCall, vhost: str, stream: str, group: str, position: object
) -> JsonObject:
    """Set the position of a group."""
    return await call.ask("set group", vhost=vhost, stream=stream, group=group, position=position)


@ROUTES.delete(
    {GROUP: "Delete the position of a group."}, tag=MANAGEMENT, permission="read on the stream"
)
async def delete_group(call: HttpCall, vhost: str, stream: str, group: str) -> Answer:
    """Delete the position of a group, even if the group has an owner."""
    done = await call.ask("delete group", vhost=vhost, stream=stream, group=group, force=True)
    return Answer(200, done)
