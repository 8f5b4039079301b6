# SPDX-License-Identifier: Apache-2.0
"""The pages of limits of virtual hosts and users: their lists, and setting or removing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.console.api import limits
from headrace.console.http.answers import RowList
from headrace.console.pages.actions import Field
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.links import FormAddress, Link, path_to
from headrace.console.pages.listings import GlobalRows, ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.listings import Rows
    from headrace.untyped import JsonObject

VHOST_LIMITS = (
    *("max-connections", "max-queues", "max-channels"),
    *("max-message-rate", "max-message-size", "max-definitions-size"),
)
USER_LIMITS = VHOST_LIMITS[:-1]
PAGES = ResourcePages()


async def list_vhost_limits(call: HttpCall, vhost: str | None) -> RowList:
    """Return one row for each limit of a virtual host."""
    return flatten_limits(await limits.list_vhost_limits(call, vhost), "vhost")


async def list_user_limits(call: HttpCall) -> RowList:
    """Return one row for each limit of a user."""
    return flatten_limits(await limits.list_user_limits(call), "user")


def flatten_limits(owners: RowList, owner: str) -> RowList:
    """Return one row for each limit of each owner; ``owner`` is ``vhost`` or ``user``."""
    rows: list[JsonObject] = [
        {owner: row[owner], "name": name, "value": value}
        for row in owners.rows
        for name, value in row["value"].items()
    ]
    return RowList(rows, (owner, "name"))


class LimitKind(NamedTuple):
    """The limits of virtual hosts, or of users."""

    owner: str  # The field of the owner: vhost or user.
    label: str
    path: str
    title: str
    rows: Rows
    names: tuple[str, ...]

    def list_page(self) -> ListPage:
        """Return the page with the list of the limits."""
        return ListPage(
            path=self.path,
            title=self.title,
            rows=self.rows,
            columns=(
                Column(self.label, self.owner),
                Column("Limit", "name"),
                Column("Value", "value", "number"),
            ),
            row_address=FormAddress(self.removal_address, ADMINISTRATOR),
            actions=(Link("Set a limit", f"{self.path}/new", ADMINISTRATOR),),
            command=command_line("limits", "list"),
        )

    @property
    def parent(self) -> tuple[str, str]:
        """Title and path of the list."""
        return self.title, self.path

    def removal_address(self, row: JsonObject) -> str:
        """Return the address of the page that removes a limit."""
        return f"{self.path}{path_to(row[self.owner], row['name'])}/delete"

    def set_command(self, values: Values) -> str:
        """Return the command line that sets a limit."""
        words = (values.get("name") or self.names[0], values.get("value") or "VALUE")
        owner = {self.owner: values.get(self.owner) or self.owner.upper()}
        return command_line("limits", "set", *words, **owner)

    def clear_command(
        self, values: Values, name: str, vhost: str | None = None, user: str | None = None
    ) -> str:
        """Return the command line that removes a limit."""
        return command_line("limits", "clear", name, vhost=vhost, user=user)


def add_actions(kind: LimitKind) -> None:
    """Add the pages that set and remove a limit of a kind."""
    default = "/" if kind.owner == "vhost" else ""

    @PAGES.action(
        f"{kind.path}/new",
        "Set a limit",
        back=kind.path,
        notice="Limit {name} is set.",
        command=kind.set_command,
        fields=(
            Field(kind.owner, kind.label, default=default, required=True),
            Field("name", "Limit", "choice", kind.names),
            Field("value", "Value", "number", required=True, help="-1: no limit."),
        ),
        parent=kind.parent,
        tag=ADMINISTRATOR,
    )
    async def add(call: HttpCall, form: Body) -> None:
        owner = {kind.owner: form.text(kind.owner)}
        await limits.set_limit(call, form.text("name"), form.number("value"), **owner)

    @PAGES.action(
        f"{kind.path}/{{{kind.owner}}}/{{name}}/delete",
        f"Remove limit {{name}} of {{{kind.owner}}}",
        back=kind.path,
        notice="Limit {name} is removed.",
        command=kind.clear_command,
        parent=kind.parent,
        button="Remove",
        danger=True,
        tag=ADMINISTRATOR,
    )
    async def remove(
        call: HttpCall, form: Body, name: str, vhost: str | None = None, user: str | None = None
    ) -> None:
        await limits.remove_limit(call, name, vhost=vhost, user=user)


KINDS = (
    LimitKind(
        owner="vhost",
        label="Virtual host",
        path="/vhost-limits",
        title="Virtual host limits",
        rows=list_vhost_limits,
        names=VHOST_LIMITS,
    ),
    LimitKind(
        owner="user",
        label="User",
        path="/user-limits",
        title="User limits",
        rows=GlobalRows(list_user_limits),
        names=USER_LIMITS,
    ),
)
PAGES.add(*(kind.list_page() for kind in KINDS))
for limit_kind in KINDS:
    add_actions(limit_kind)
