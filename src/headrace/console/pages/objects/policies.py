# SPDX-License-Identifier: Apache-2.0
"""The pages of policies and operator policies: their lists, and setting or removing one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from headrace.console.api import policies
from headrace.console.http.answers import RowList
from headrace.console.pages.actions import Field, refuse_existing
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.links import FormAddress, Link, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.user_tags import ADMINISTRATOR, POLICYMAKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values

APPLY_TO = ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges")
COLUMNS = (
    Column("Name", "name"),
    Column("Virtual host", "vhost"),
    Column("Pattern", "pattern"),
    Column("Applies to", "apply-to"),
    Column("Priority", "priority", "number"),
    Column("Definition", "definition", "json"),
)
FIELDS = (
    Field(
        "pattern",
        "Pattern",
        required=True,
        help="Matches names of queues and exchanges, such as ^orders.",
    ),
    Field("apply-to", "Applies to", "choice", APPLY_TO),
    Field(
        "priority",
        "Priority",
        "number",
        default="0",
        help="Of the policies that match, the highest priority applies.",
    ),
    Field("definition", "Definition", "json", required=True, help='Such as {"max-length": 1000}.'),
)
PAGES = ResourcePages()


class PolicyKind(NamedTuple):
    """Policies or operator policies: their names in paths, titles and commands."""

    name: str  # The name of the kind in the functions of the API.
    path: str
    title: str
    about: str
    command: str
    tag: str

    def list_page(self) -> ListPage:
        """Return the page with the list of the policies."""
        return ListPage(
            path=self.path,
            title=self.title,
            rows=self.list_rows,
            columns=COLUMNS,
            row_address=FormAddress(self.address, self.tag),
            actions=(Link("Set a policy", f"{self.path}/new", self.tag),),
            about=self.about,
            command=command_line(self.command, "list"),
        )

    async def list_rows(self, call: HttpCall, vhost: str | None) -> RowList:
        """Return the policies of a virtual host, or of all that the user sees."""
        return RowList(await policies.policies_of_kind(call, self.name, vhost))

    @property
    def parent(self) -> tuple[str, str]:
        """Title and path of the list."""
        return self.title, self.path

    def address(self, row: Mapping[str, object]) -> str:
        """Return the address of a policy's page."""
        return f"{self.path}{path_to(row['vhost'], row['name'])}"

    def add_command(self, values: Values) -> str:
        """Return the command line that sets a new policy."""
        vhost, name = str(values.get("vhost") or ""), str(values.get("name") or "NAME")
        return self.set_command(values, vhost, name)

    def set_command(self, values: Values, vhost: str, name: str) -> str:
        """Return the command line that sets a policy."""
        words = (name, values.get("pattern") or "PATTERN", definition_word(values))
        return command_line(self.command, "set", *words, **scope_options(values), vhost=vhost)

    def clear_command(self, values: Values, vhost: str, name: str) -> str:
        """Return the command line that removes a policy."""
        return command_line(self.command, "clear", name, vhost=vhost)

    async def current_values(self, call: HttpCall, vhost: str, name: str) -> Mapping[str, str]:
        """Return the present values of a policy's form."""
        row = await policies.policy_of_kind(call, self.name, vhost, name)
        return {
            "pattern": row["pattern"],
            "apply-to": row["apply-to"],
            "priority": str(row["priority"]),
            "definition": json.dumps(row["definition"]),
        }

    def removal_link(self, vhost: str, name: str) -> list[Link]:
        """Return the link that removes a policy."""
        address = self.address({"vhost": vhost, "name": name})
        return [Link("Remove", f"{address}/delete", self.tag, danger=True)]


def definition_word(values: Values) -> str:
    """Return the definition of a policy as a word of a command line."""
    definition = values.get("definition")
    if isinstance(definition, dict):
        return json.dumps(definition)
    return str(definition or "DEFINITION")


def scope_options(values: Values) -> dict[str, object]:
    """Return the options of a command line for priority and scope; defaults are left out."""
    priority, apply_to = values.get("priority"), values.get("apply-to")
    return {
        "priority": None if str(priority) == "0" else priority,
        "apply_to": None if apply_to == "all" else apply_to,
    }


async def set_policy(call: HttpCall, kind: PolicyKind, vhost: str, name: str, form: Body) -> None:
    """Set the policy of a form."""
    await policies.set_policy_of_kind(
        call,
        kind.name,
        vhost,
        name,
        pattern=form.text("pattern"),
        definition=form.table("definition"),
        priority=form.number("priority"),
        apply_to=form.text("apply-to"),
    )


def add_actions(kind: PolicyKind) -> None:
    """Add the pages that set, change and remove a policy of a kind."""
    policy = f"{kind.path}/{{vhost}}/{{name}}"

    @PAGES.action(
        f"{kind.path}/new",
        "Set a policy",
        back=kind.path,
        notice="Policy {name} is set.",
        command=kind.add_command,
        fields=(
            Field("vhost", "Virtual host", default="/", required=True),
            Field("name", "Name", required=True),
            *FIELDS,
        ),
        parent=kind.parent,
        tag=kind.tag,
    )
    async def add(call: HttpCall, form: Body) -> None:
        vhost, name = form.text("vhost"), form.text("name")
        await refuse_existing(
            policies.policy_of_kind(call, kind.name, vhost, name), "the policy exists"
        )
        await set_policy(call, kind, vhost, name, form)

    @PAGES.action(
        policy,
        "Change policy {name}",
        back=kind.path,
        notice="Policy {name} is changed.",
        command=kind.set_command,
        fields=FIELDS,
        parent=kind.parent,
        tag=kind.tag,
        values=kind.current_values,
        links=kind.removal_link,
    )
    async def change(call: HttpCall, form: Body, vhost: str, name: str) -> None:
        await set_policy(call, kind, vhost, name, form)

    @PAGES.action(
        f"{policy}/delete",
        "Remove policy {name}",
        back=kind.path,
        notice="Policy {name} is removed.",
        command=kind.clear_command,
        confirm="{name}",
        parent=kind.parent,
        button="Remove",
        danger=True,
        tag=kind.tag,
    )
    async def remove(call: HttpCall, form: Body, vhost: str, name: str) -> None:
        await policies.remove_policy_of_kind(call, kind.name, vhost, name)


KINDS = (
    PolicyKind(
        name=policies.POLICIES,
        path="/policies",
        title="Policies",
        about="A policy sets options of the queues and exchanges whose names match its pattern.",
        command="policy",
        tag=POLICYMAKER,
    ),
    PolicyKind(
        name=policies.OPERATOR_POLICIES,
        path="/operator-policies",
        title="Operator policies",
        about="An operator policy sets limits that no policy and no client exceeds.",
        command="operator-policy",
        tag=ADMINISTRATOR,
    ),
)
PAGES.add(*(kind.list_page() for kind in KINDS))
for policy_kind in KINDS:
    add_actions(policy_kind)
