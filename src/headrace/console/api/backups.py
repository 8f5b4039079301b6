# SPDX-License-Identifier: Apache-2.0
"""Named backups, in the directory of the setting ``backup_directory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, Body, schema
from headrace.console.api.schemas.parts import TEXT
from headrace.console.broker.lists import BACKUPS
from headrace.console.http.answers import Answer, Listed
from headrace.console.http.routes import Routes
from headrace.console.http_errors import bad_request
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

PATH = "/api/headrace/backups"
ROUTES = Routes()


@ROUTES.get(
    {PATH: "Backups in `backup_directory`, with time and bytes."}, tag=ADMINISTRATOR, paged=True
)
async def list_backups(call: HttpCall) -> Listed:
    """Return the named backups."""
    return Listed(await call.rows(BACKUPS), ("name",))


@ROUTES.post(
    {PATH: "Make a named backup there; `base` names a backup whose files are linked."},
    tag=ADMINISTRATOR,
    body=schema(("name",), name=TEXT, base=TEXT, verify=BOOLEAN),
)
async def make_backup(call: HttpCall) -> Answer:
    """Make a backup; the answer follows when the backup is complete."""
    body = await Body.of(call)
    name = body.text("name")
    if not name:
        raise bad_request("'name' is empty")
    done = await call.ask(
        "back up", name=name, base=body.text("base") or None, verify=body.flag("verify")
    )
    size = done.pop("octets")
    return Answer(201, {"name": name, **done, "bytes": size})
