# SPDX-License-Identifier: Apache-2.0
"""Policies and operator policies, and limits of virtual hosts and users."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from headrace.console.api import policies
from headrace.console.http.answers import Listed
from headrace.console.pages.actions import Action, Field, refuse_known
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, Link, ListPage, everywhere
from headrace.console.pages.texts import plain, segment
from headrace.user_tags import ADMINISTRATOR, POLICYMAKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.listings import Rows
    from headrace.untyped import JsonObject

APPLY_TO = ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges")
VHOST_LIMITS = (
    *("max-connections", "max-queues", "max-channels"),
    *("max-message-rate", "max-message-size", "max-definitions-size"),
)
USER_LIMITS = VHOST_LIMITS[:-1]
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


class PolicyKind(NamedTuple):
    """Policies, or operator policies, and their pages."""

    name: str  # As the API's functions have it.
    kind: str
    title: str
    about: str
    command: str
    tag: str

    @property
    def parent(self) -> tuple[str, str]:
        """Return title and URL of the list."""
        return self.title, f"/{self.kind}"

    def list_url(self, call: HttpCall, values: object) -> str:
        """Return where an action on a policy leads when it is done."""
        return f"/{self.kind}"

    def set_line(self, name: object, values: Values, vhost: object) -> str:
        """Return the command that sets a policy."""
        words = (name, values.get("pattern") or "PATTERN", definition_of(values))
        return line(self.command, "set", *words, **scope_of(values), vhost=vhost)


def definition_of(values: Values) -> str:
    """Return the definition of a policy as a word of a command."""
    found = values.get("definition")
    return json.dumps(found) if isinstance(found, dict) else str(found or "DEFINITION")


def scope_of(values: Values) -> dict[str, object]:
    """Return the options of a command for what a policy applies to, where it is not all."""
    priority, apply_to = values.get("priority"), values.get("apply-to")
    return {
        "priority": None if str(priority) == "0" else priority,
        "apply_to": None if apply_to == "all" else apply_to,
    }


def list_of(kind: PolicyKind) -> ListPage:
    """Return the list of policies of a kind."""

    async def rows(call: HttpCall, vhost: str | None) -> Listed:
        return Listed(await policies.policies(call, kind.name, vhost))

    return ListPage(
        f"/{kind.kind}",
        kind.title,
        rows,
        COLUMNS,
        lambda row: f"/{kind.kind}/{segment(row['vhost'])}/{segment(row['name'])}",
        (Link("Set a policy", f"/{kind.kind}/new", kind.tag),),
        about=kind.about,
        command=line(kind.command, "list"),
    )


async def set_policy(call: HttpCall, kind: PolicyKind, vhost: str, name: str, form: Body) -> None:
    """Set the policy of a form."""
    await policies.set_policy(
        call,
        kind.name,
        vhost,
        name,
        pattern=form.text("pattern"),
        definition=form.table("definition"),
        priority=form.number("priority"),
        apply_to=form.text("apply-to"),
    )


def set_action(kind: PolicyKind) -> Action:
    """Return the action that makes a policy."""

    async def add(call: HttpCall, form: Body) -> None:
        vhost, name = form.text("vhost"), form.text("name")
        await refuse_known(policies.policy(call, kind.name, vhost, name), "the policy exists")
        await set_policy(call, kind, vhost, name, form)

    return Action(
        f"/{kind.kind}/new",
        "Set a policy",
        add,
        kind.list_url,
        lambda call, values: f"Policy {plain(str(values['name']))} is set.",
        (
            Field("vhost", "Virtual host", default="/", required=True),
            Field("name", "Name", required=True),
            *FIELDS,
        ),
        command=lambda call, values: kind.set_line(
            values.get("name") or "NAME", values, values.get("vhost")
        ),
        parent=kind.parent,
        tag=kind.tag,
    )


def change_action(kind: PolicyKind) -> Action:
    """Return the action that changes a policy."""

    async def values(call: HttpCall) -> Mapping[str, str]:
        row = await policies.policy(call, kind.name, **call.path)
        return {
            "pattern": row["pattern"],
            "apply-to": row["apply-to"],
            "priority": str(row["priority"]),
            "definition": json.dumps(row["definition"]),
        }

    return Action(
        f"/{kind.kind}/{{vhost}}/{{name}}",
        "Change policy {name}",
        lambda call, form: set_policy(call, kind, **call.path, form=form),
        kind.list_url,
        lambda call, values: f"Policy {plain(call.path['name'])} is changed.",
        FIELDS,
        command=lambda call, values: kind.set_line(call.path["name"], values, call.path["vhost"]),
        parent=kind.parent,
        tag=kind.tag,
        values=values,
        links=lambda call: [
            Link(
                "Remove",
                f"/{kind.kind}/{segment(call.path['vhost'])}/{segment(call.path['name'])}/delete",
                kind.tag,
                danger=True,
            )
        ],
    )


def remove_action(kind: PolicyKind) -> Action:
    """Return the action that removes a policy."""
    return Action(
        f"/{kind.kind}/{{vhost}}/{{name}}/delete",
        "Remove policy {name}",
        lambda call, form: policies.remove_policy(call, kind.name, **call.path),
        kind.list_url,
        lambda call, values: f"Policy {plain(call.path['name'])} is removed.",
        command=lambda call, values: line(
            kind.command, "clear", call.path["name"], vhost=call.path["vhost"]
        ),
        confirm=lambda call: plain(call.path["name"]),
        parent=kind.parent,
        button="Remove",
        danger=True,
        tag=kind.tag,
    )


async def vhost_limit_rows(call: HttpCall, vhost: str | None) -> Listed:
    """Return one row for each limit of a virtual host."""
    return each_limit(await policies.list_vhost_limits(call, vhost), "vhost")


async def user_limit_rows(call: HttpCall) -> Listed:
    """Return one row for each limit of a user."""
    return each_limit(await policies.list_user_limits(call), "user")


def each_limit(listed: Listed, whose: str) -> Listed:
    """Return rows of one limit each."""
    rows: list[JsonObject] = [
        {whose: row[whose], "name": name, "value": value}
        for row in listed.rows
        for name, value in row["value"].items()
    ]
    return Listed(rows, (whose, "name"))


def limits(
    kind: str, title: str, whose: str, label: str, rows: Rows, names: tuple[str, ...]
) -> tuple[ListPage, tuple[Action, ...]]:
    """Return the list of limits of a kind, and the actions on them.

    ``whose`` is ``vhost`` or ``user``.
    """
    parent = (title, f"/{kind}")

    async def set_limit(call: HttpCall, form: Body) -> None:
        owner = {whose: form.text(whose)}
        await policies.set_limit(call, form.text("name"), form.number("value"), **owner)

    listing = ListPage(
        f"/{kind}",
        title,
        rows,
        (Column(label, whose), Column("Limit", "name"), Column("Value", "value", "number")),
        lambda row: f"/{kind}/{segment(row[whose])}/{segment(row['name'])}/delete",
        (Link("Set a limit", f"/{kind}/new", ADMINISTRATOR),),
        command=line("limits", "list"),
    )
    actions = (
        Action(
            f"/{kind}/new",
            "Set a limit",
            set_limit,
            lambda call, values: f"/{kind}",
            lambda call, values: f"Limit {values['name']} is set.",
            (
                Field(whose, label, default="/" if whose == "vhost" else "", required=True),
                Field("name", "Limit", "choice", names),
                Field("value", "Value", "number", required=True, help="-1: no limit."),
            ),
            command=lambda call, values: line(
                "limits",
                "set",
                values.get("name") or names[0],
                values.get("value") or "VALUE",
                **{whose: values.get(whose) or whose.upper()},
            ),
            parent=parent,
            tag=ADMINISTRATOR,
        ),
        Action(
            f"/{kind}/{{{whose}}}/{{name}}/delete",
            f"Remove limit {{name}} of {{{whose}}}",
            lambda call, form: policies.remove_limit(call, **call.path),
            lambda call, values: f"/{kind}",
            lambda call, values: f"Limit {plain(call.path['name'])} is removed.",
            command=lambda call, values: line(
                "limits", "clear", call.path["name"], **{whose: call.path[whose]}
            ),
            parent=parent,
            button="Remove",
            danger=True,
            tag=ADMINISTRATOR,
        ),
    )
    return listing, actions


OF_VHOSTS = limits(
    "vhost-limits",
    "Virtual host limits",
    "vhost",
    "Virtual host",
    vhost_limit_rows,
    VHOST_LIMITS,
)
OF_USERS = limits(
    "user-limits",
    "User limits",
    "user",
    "User",
    everywhere(user_limit_rows),
    USER_LIMITS,
)
POLICIES = (
    PolicyKind(
        policies.POLICIES,
        "policies",
        "Policies",
        "A policy sets options of the queues and exchanges whose names match its pattern.",
        "policy",
        POLICYMAKER,
    ),
    PolicyKind(
        policies.OPERATOR_POLICIES,
        "operator-policies",
        "Operator policies",
        "An operator policy sets limits that no policy and no client exceeds.",
        "operator-policy",
        ADMINISTRATOR,
    ),
)
LISTS = (*map(list_of, POLICIES), OF_VHOSTS[0], OF_USERS[0])
ACTIONS = (
    *(make(kind) for kind in POLICIES for make in (set_action, change_action, remove_action)),
    *OF_VHOSTS[1],
    *OF_USERS[1],
)
