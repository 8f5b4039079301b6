# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import vhosts
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Action, Field, refuse_known
from headrace.console.pages.commands import is_on, line, listed
from headrace.console.pages.details import DetailPage
from headrace.console.pages.listings import Column, Link, ListPage, everywhere
from headrace.console.pages.objects.charts import depths_and_rates
from headrace.console.pages.texts import counted, plain, segment
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

PARENT = ("Virtual hosts", "/vhosts")


def vhost_address(row: JsonObject) -> str:
    """Return the address of a virtual host's page."""
    return f"/vhosts/{segment(row['name'])}"


def vhost_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return what can be done with a virtual host."""
    at = vhost_address(row)
    return [
        Link("Change", f"{at}/edit", ADMINISTRATOR),
        Link("Delete", f"{at}/delete", ADMINISTRATOR, danger=True),
    ]


async def vhost_hits(call: HttpCall) -> str:
    """Return what deleting a virtual host takes away."""
    row = await vhosts.show_vhost(call, **call.path)
    return (
        f"Virtual host {plain(row['name'])} has {counted(row['messages'], 'message')}. Its "
        "queues, exchanges, policies and permissions are deleted, and its connections are closed."
    )


async def vhost_values(call: HttpCall) -> Mapping[str, str]:
    """Return what is set for a virtual host."""
    row = await vhosts.show_vhost(call, **call.path)
    return {
        "description": row["description"],
        "tags": ", ".join(row["tags"]),
        "default_queue_type": row["default_queue_type"],
        "tracing": "true" if row["tracing"] else "",
        "protected_from_deletion": "true" if row["protected_from_deletion"] else "",
    }


FIELDS = (
    Field("description", "Description"),
    Field("tags", "Tags", help="Separated by commas."),
    Field("default_queue_type", "Default queue type", "choice", ("classic", "quorum", "stream")),
    Field("tracing", "Tracing: copy all messages to amq.rabbitmq.trace", "flag"),
    Field("protected_from_deletion", "Protect from deletion", "flag"),
)


def add_vhost_command(call: HttpCall, values: Values) -> str:
    """Return the commands that add a virtual host, and say more than its name."""
    name = str(values.get("name") or "NAME")
    added = line("vhost", "add", name)
    is_plain = not any(values.get(one.name) for one in FIELDS)
    return added if is_plain else f"{added} && {set_vhost_command(name, values)}"


def set_vhost_command(name: str, values: Values, *, clears: bool = False) -> str:
    """Return the commands that set a virtual host; ``clears``: what is empty ends what was set."""
    description, tags = values.get("description"), listed(values.get("tags"))
    is_protected, is_traced = (
        is_on(values.get(flag)) for flag in ("protected_from_deletion", "tracing")
    )
    setting = line(
        "vhost",
        "set",
        name,
        # Of a list an empty text is an option, too.
        description=[description or ""] if clears else description,
        tag=tags,
        no_tags=clears and not tags,
        default_queue_type=values.get("default_queue_type"),
        protected=is_protected,
        unprotected=clears and not is_protected,
    )
    if not (is_traced or clears):
        return setting
    return f"{setting} && {line('trace', 'on' if is_traced else 'off', vhost=name)}"


async def set_vhost(call: HttpCall, vhost: str, form: Body) -> None:
    """Add or change a virtual host; what the form leaves empty is emptied."""
    await vhosts.set_vhost(
        call,
        vhost,
        description=form.text("description"),
        tags=form.texts("tags") or [],
        default_queue_type=form.text("default_queue_type") or None,
        tracing=form.flag("tracing"),
        protected_from_deletion=form.flag("protected_from_deletion"),
    )


async def add_vhost(call: HttpCall, form: Body) -> None:
    """Add a virtual host."""
    name = form.text("name")
    await refuse_known(vhosts.show_vhost(call, name), "the virtual host exists")
    await set_vhost(call, name, form)


LISTS = (
    ListPage(
        "/vhosts",
        "Virtual hosts",
        everywhere(vhosts.list_vhosts),
        (
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
        vhost_address,
        (Link("Add a virtual host", "/vhosts/new", ADMINISTRATOR),),
        command=line("vhost", "list"),
    ),
)
PAGES = (
    DetailPage(
        "/vhosts/{vhost}",
        "Virtual host",
        PARENT,
        by_path(vhosts.show_vhost),
        lambda row: row["name"],
        (
            Column("Ready", "messages_ready", "number"),
            Column("Unacknowledged", "messages_unacknowledged", "number"),
            Column("Description", "description"),
            Column("Tags", "tags", "json"),
            Column("Default queue type", "default_queue_type"),
            Column("Tracing", "tracing", "flag"),
            Column("Protected from deletion", "protected_from_deletion", "flag"),
        ),
        actions=vhost_links,
        charts=lambda row: depths_and_rates(f"/charts/vhost/{segment(row['name'])}"),
    ),
)
ACTIONS = (
    Action(
        "/vhosts/new",
        "Add a virtual host",
        add_vhost,
        lambda call, values: "/vhosts",
        lambda call, values: f"Virtual host {plain(str(values['name']))} is added.",
        (Field("name", "Name", required=True), *FIELDS),
        command=add_vhost_command,
        parent=PARENT,
        button="Add",
        tag=ADMINISTRATOR,
    ),
    Action(
        "/vhosts/{vhost}/edit",
        "Change virtual host {vhost}",
        lambda call, form: set_vhost(call, **call.path, form=form),
        lambda call, values: f"/vhosts/{segment(call.path['vhost'])}",
        lambda call, values: f"Virtual host {plain(call.path['vhost'])} is changed.",
        FIELDS,
        command=lambda call, values: set_vhost_command(call.path["vhost"], values, clears=True),
        parent=PARENT,
        tag=ADMINISTRATOR,
        values=vhost_values,
    ),
    Action(
        "/vhosts/{vhost}/delete",
        "Delete virtual host {vhost}",
        lambda call, form: vhosts.delete_vhost(call, **call.path),
        lambda call, values: "/vhosts",
        lambda call, values: f"Virtual host {plain(call.path['vhost'])} is deleted.",
        command=lambda call, values: line("vhost", "delete", call.path["vhost"]),
        confirm=lambda call: plain(call.path["vhost"]),
        hits=vhost_hits,
        parent=PARENT,
        button="Delete with all contents",
        danger=True,
        tag=ADMINISTRATOR,
    ),
)
