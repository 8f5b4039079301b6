# SPDX-License-Identifier: Apache-2.0
"""Groups of stream readers: their lags, and setting or deleting their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import Body, schema
from headrace.console.api.common.lookups import read_named_rows
from headrace.console.api.common.schemas import FLAG, OBJECT, TEXT, WHOLE, record
from headrace.console.broker.lists import GROUPS
from headrace.console.http.answers import Answer, RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

WORDS = ("first", "last", "next")  # Positions besides offsets.
GROUP = "/api/headrace/groups/{vhost}/{stream}/{group}"
GROUP_SCHEMA = record(
    stream=TEXT,
    group=TEXT,
    vhost=TEXT,
    position=WHOLE,
    lag=WHOLE,
    lag_bytes=WHOLE,
    owner=TEXT,
    claimed=FLAG,
    pin=FLAG,
)
NAMED_GROUP_SCHEMA = {"allOf": [GROUP_SCHEMA, record(name=TEXT)]}
CHANGED_GROUP_SCHEMA = record(
    stream=TEXT,
    id=WHOLE,
    group=TEXT,
    committed=WHOLE,
    position=WHOLE,
    pin=FLAG,
    owner=TEXT,
    claimed=FLAG,
    lag=WHOLE,
    lag_bytes=WHOLE,
    lag_octets=WHOLE,  # The former name of `lag_bytes`.
)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/headrace/groups": "Groups of stream readers, with their lag.",
        "/api/headrace/groups/{vhost}": "The stream groups of one virtual host.",
    },
    rows=NAMED_GROUP_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_groups(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the groups of stream readers with their lag."""
    return await read_named_rows(call, GROUPS, vhost, "group")


@ROUTES.put(
    {GROUP: "Set the position of a group: an offset, first, last or next."},
    tag=MANAGEMENT,
    permission="read on the stream",
    body=schema(("position",), position={"type": ["integer", "string"]}),
    answer=CHANGED_GROUP_SCHEMA,
)
async def put_group(call: HttpCall, vhost: str, stream: str, group: str) -> Answer:
    """Set the position of a group."""
    position = read_position(await Body.read(call))
    return Answer(200, await set_group(call, vhost, stream, group, position))


def read_position(body: Body) -> object:
    """Return a position: an offset, or a word. The broker refuses unknown ones."""
    position = body.values["position"]
    if isinstance(position, str) and position not in WORDS:
        return body.number("position")
    return position


async def set_group(
    call: HttpCall, vhost: str, stream: str, group: str, position: object
) -> JsonObject:
    """Set the position of a group."""
    return await call.broker.ask(
        "set group", vhost=vhost, stream=stream, group=group, position=position
    )


@ROUTES.delete(
    {GROUP: "Delete the position of a group."},
    tag=MANAGEMENT,
    permission="read on the stream",
    answer=OBJECT,
)
async def remove_group(call: HttpCall, vhost: str, stream: str, group: str) -> Answer:
    """Delete the position of a group, even if the group has an owner."""
    done = await call.broker.ask(
        "delete group", vhost=vhost, stream=stream, group=group, force=True
    )
    return Answer(200, done)
