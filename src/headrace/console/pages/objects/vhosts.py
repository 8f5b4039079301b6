# SPDX-License-Identifier: Apache-2.0
"""The pages of virtual hosts: their list, one host, and adding, changing or deleting one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import vhosts
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Field, refuse_existing
from headrace.console.pages.charts.addresses import message_charts
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line, is_on, split_words
from headrace.console.pages.details import DetailPage
from headrace.console.pages.links import Link, path_to
from headrace.console.pages.listings import GlobalRows, ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import escape_hidden, pluralize
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.links import Charts
    from headrace.untyped import JsonObject

PARENT = ("Virtual hosts", "/vhosts")
DETAIL_PATH = "/vhosts/{vhost}"
FIELDS = (
    Field("description", "Description"),
    Field("tags", "Tags", help="Separated by commas."),
    Field("default_queue_type", "Default queue type", "choice", ("classic", "quorum", "stream")),
    Field("tracing", "Tracing: copy all messages to amq.rabbitmq.trace", "flag"),
    Field("protected_from_deletion", "Protect from deletion", "flag"),
)
PAGES = ResourcePages()


def vhost_address(row: JsonObject) -> str:
    """Return the address of a virtual host's page."""
    return path_to("vhosts", row["name"])


def vhost_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return the links of a virtual host's page."""
    address = vhost_address(row)
    return [
        Link("Change", f"{address}/edit", ADMINISTRATOR),
        Link("Delete", f"{address}/delete", ADMINISTRATOR, danger=True),
    ]


def vhost_charts(row: JsonObject) -> Charts:
    """Return the charts of a virtual host."""
    return message_charts(path_to("charts", "vhost", row["name"]))


PAGES.add(
    ListPage(
        path="/vhosts",
        title="Virtual hosts",
        rows=GlobalRows(vhosts.list_vhosts),
        columns=(
            Column("Name", "name"),
            Column("Ready", "messages_ready", "number"),
            Column("Unacked", "messages_unacknowledged", "number"),
            Column("Published", "message_stats.publish_details.rate", "rate"),
            Column("Delivered", "message_stats.deliver_get_details.rate", "rate"),
            Column("Queue type", "default_queue_type"),
            Column("Tracing", "tracing", "flag"),
            Column("Protected", "protected_from_deletion", "flag"),
            Column("Tags", "tags", "json"),
            Column("Description", "description"),
        ),
        row_address=vhost_address,
        actions=(Link("Add a virtual host", "/vhosts/new", ADMINISTRATOR),),
        command=command_line("vhost", "list"),
    ),
    DetailPage(
        path=DETAIL_PATH,
        kind="Virtual host",
        parent=PARENT,
        show_object=by_path(vhosts.show_vhost),
        facts=(
            Column("Ready", "messages_ready", "number"),
            Column("Unacknowledged", "messages_unacknowledged", "number"),
            Column("Description", "description"),
            Column("Tags", "tags", "json"),
            Column("Default queue type", "default_queue_type"),
            Column("Tracing", "tracing", "flag"),
            Column("Protected from deletion", "protected_from_deletion", "flag"),
        ),
        links=vhost_links,
        charts=vhost_charts,
    ),
)


async def set_vhost(call: HttpCall, vhost: str, form: Body) -> None:
    """Add or change a virtual host; an empty field of the form clears its value."""
    await vhosts.set_vhost(
        call,
        vhost,
        description=form.text("description"),
        tags=form.texts("tags") or [],
        default_queue_type=form.text("default_queue_type") or None,
        tracing=form.flag("tracing"),
        protected_from_deletion=form.flag("protected_from_deletion"),
    )


def set_command(name: str, values: Values, *, clears: bool = False) -> str:
    """Return the command lines that set the fields of a virtual host.

    With ``clears`` an empty field clears its value.
    """
    description, tags = values.get("description"), split_words(values.get("tags"))
    is_protected, is_traced = (
        is_on(values.get(flag)) for flag in ("protected_from_deletion", "tracing")
    )
    set_line = command_line(
        "vhost",
        "set",
        name,
        # A list with an empty text is an option; an empty text alone is left out.
        description=[description or ""] if clears else description,
        tag=tags,
        no_tags=clears and not tags,
        default_queue_type=values.get("default_queue_type"),
        protected=is_protected,
        unprotected=clears and not is_protected,
    )
    if not (is_traced or clears):
        return set_line
    return f"{set_line} && {command_line('trace', 'on' if is_traced else 'off', vhost=name)}"


def add_command(values: Values) -> str:
    """Return the command lines that add a virtual host and set its fields."""
    name = str(values.get("name") or "NAME")
    add_line = command_line("vhost", "add", name)
    sets_fields = any(values.get(field.name) for field in FIELDS)
    return f"{add_line} && {set_command(name, values)}" if sets_fields else add_line


@PAGES.action(
    "/vhosts/new",
    "Add a virtual host",
    back="/vhosts",
    notice="Virtual host {name} is added.",
    command=add_command,
    fields=(Field("name", "Name", required=True), *FIELDS),
    parent=PARENT,
    button="Add",
    tag=ADMINISTRATOR,
)
async def add(call: HttpCall, form: Body) -> None:
    """Add a virtual host."""
    name = form.text("name")
    await refuse_existing(vhosts.show_vhost(call, name), "the virtual host exists")
    await set_vhost(call, name, form)


async def vhost_values(call: HttpCall, vhost: str) -> Mapping[str, str]:
    """Return the present fields of a virtual host."""
    row = await vhosts.show_vhost(call, vhost)
    return {
        "description": row["description"],
        "tags": ", ".join(row["tags"]),
        "default_queue_type": row["default_queue_type"],
        "tracing": "true" if row["tracing"] else "",
        "protected_from_deletion": "true" if row["protected_from_deletion"] else "",
    }


def change_command(values: Values, vhost: str) -> str:
    """Return the command lines that change a virtual host."""
    return set_command(vhost, values, clears=True)


@PAGES.action(
    f"{DETAIL_PATH}/edit",
    "Change virtual host {vhost}",
    back=DETAIL_PATH,
    notice="Virtual host {vhost} is changed.",
    command=change_command,
    fields=FIELDS,
    parent=PARENT,
    tag=ADMINISTRATOR,
    values=vhost_values,
)
async def change(call: HttpCall, form: Body, vhost: str) -> None:
    """Change the virtual host of a page."""
    await set_vhost(call, vhost, form)


async def delete_impact(call: HttpCall, vhost: str) -> str:
    """Describe the contents of a virtual host before it is deleted."""
    row = await vhosts.show_vhost(call, vhost)
    messages = pluralize(row["messages"], "message")
    return (
        f"Virtual host {escape_hidden(row['name'])} has {messages}. Its "
        "queues, exchanges, policies and permissions are deleted, and its connections are closed."
    )


def delete_command(values: Values, vhost: str) -> str:
    """Return the command line that deletes a virtual host."""
    return command_line("vhost", "delete", vhost)


@PAGES.action(
    f"{DETAIL_PATH}/delete",
    "Delete virtual host {vhost}",
    back="/vhosts",
    notice="Virtual host {vhost} is deleted.",
    command=delete_command,
    confirm="{vhost}",
    impact=delete_impact,
    parent=PARENT,
    button="Delete with all contents",
    danger=True,
    tag=ADMINISTRATOR,
)
async def delete(call: HttpCall, form: Body, vhost: str) -> None:
    """Delete the virtual host of a page."""
    await vhosts.remove_vhost(call, vhost)
