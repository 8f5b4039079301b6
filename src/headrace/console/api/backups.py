# SPDX-License-Identifier: Apache-2.0
"""Named backups, in the directory of the setting ``backup_directory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, Body, schema
from headrace.console.api.common.schemas import (
    TEXT,
    TEXT_OR_NONE,
    TIME,
    WHOLE,
    WHOLE_OR_NONE,
    record,
)
from headrace.console.broker.lists import BACKUPS
from headrace.console.http.answers import Answer, RowList
from headrace.console.http.routes import Routes
from headrace.console.http_errors import bad_request
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

PATH = "/api/headrace/backups"
BACKUP_SCHEMA = record(
    name=TEXT,
    begun=TEXT_OR_NONE,
    finished=TEXT_OR_NONE,
    bytes=WHOLE_OR_NONE,
    files=WHOLE_OR_NONE,
    vhosts=WHOLE_OR_NONE,
    identity=TEXT_OR_NONE,
    error=TEXT,
)
NEW_BACKUP_SCHEMA = record(
    name=TEXT, begun=TIME, finished=TIME, bytes=WHOLE, files=WHOLE, vhosts=WHOLE, identity=TEXT
)
ROUTES = Routes()


@ROUTES.get_list(
    {PATH: "Backups in `backup_directory`, with time and bytes."},
    rows=BACKUP_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_backups(call: HttpCall) -> RowList:
    """Return the named backups."""
    return RowList(await call.broker.rows(BACKUPS), ("name",))


@ROUTES.post(
    {PATH: "Make a named backup there; `base` names a backup whose files are linked."},
    tag=ADMINISTRATOR,
    body=schema(("name",), name=TEXT, base=TEXT, verify=BOOLEAN),
    answer=NEW_BACKUP_SCHEMA,
)
async def post_backup(call: HttpCall) -> Answer:
    """Make a backup; the answer follows when the backup is complete."""
    body = await Body.read(call)
    name = body.text("name")
    if not name:
        raise bad_request("'name' is empty")
    done = await call.broker.ask(
        "back up", name=name, base=body.text("base") or None, verify=body.flag("verify")
    )
    size = done.pop("octets")
    return Answer(201, {"name": name, **done, "bytes": size})
