# SPDX-License-Identifier: Apache-2.0
"""``headrace list`` and ``headrace show``: objects of a running broker; ``headrace close``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from headrace.cli.commands import Group, SuggestingChoice
from headrace.cli.management import BY_SOCKET, ask, list_items, management_option
from headrace.cli.output import Row, format_option, print_facts, print_rows

# Columns of each kind, unless --columns chooses others.
COLUMNS: dict[str, tuple[str, ...]] = {
    "connections": (
        *("id", "user", "vhost", "host", "port", "protocol", "tls", "state", "channels", "name"),
        "client",
    ),
    "channels": (
        *("connection", "number", "name", "user", "vhost", "consumers", "unacked", "prefetch"),
        *("confirms", "transactional"),
    ),
    "consumers": (
        *("queue", "vhost", "tag", "connection", "channel", "user", "ack", "prefetch"),
        *("unacked", "priority", "active"),
    ),
    "exchanges": ("name", "vhost", "type", "durable", "auto_delete", "internal", "bindings"),
    "queues": ("name", "vhost", "type", "ready", "unacked", "bytes", "consumers", "durable"),
    "streams": ("name", "vhost", "first_offset", "next_offset", "bytes", "consumers", "groups"),
    "bindings": ("source", "vhost", "kind", "destination", "routing_key", "arguments"),
    "transactions": ("xid", "vhost", "state", "since", "publishes", "settles", "sessions"),
    "jobs": ("id", "vhost", "do", "from", "to", "state", "looked", "done", "shown"),
    "leases": ("queue", "group", "vhost", "settled", "next", "leased", "ready", "owner"),
    "groups": ("stream", "group", "vhost", "position", "lag", "lag_bytes", "owner", "pin"),
    "brokers": ("name", "address", "state", "vhosts"),
    "vhosts": ("name", "queues", "exchanges", "connections", "ready", "unacked", "bytes"),
    "users": ("name", "tags", "connections"),
    "permissions": ("user", "vhost", "configure", "write", "read"),
    "policies": ("vhost", "kind", "name", "pattern", "apply-to", "priority", "definition"),
}
OF_USERS = ("connections", "channels", "consumers", "permissions")
# Kinds that brokers of a cluster list together, from the one that serves each virtual host.
SHARED = (
    *("exchanges", "queues", "streams", "bindings", "transactions", "jobs", "leases", "groups"),
    *("vhosts", "policies"),
)
EVERYWHERE = ("brokers", "users")  # Kinds outside virtual hosts.
QUEUE, STREAM = "queue", "stream"
WHOLE = ("connection", "exchange", QUEUE, STREAM)  # Kinds with an operation "show".
# Other kinds are found in their list, by these columns.
FOUND: dict[str, tuple[str, ...]] = {
    "channel": ("number", "name"),
    "consumer": ("tag",),
    "transaction": ("xid",),
    "job": ("id",),
    "lease": ("queue", "group"),
    "group": ("group", "stream"),
    "vhost": ("name",),
    "user": ("name",),
}


@click.command("list")
@management_option
@click.option("--vhost", help="Only objects of this virtual host. [all]")
@click.option("--user", help="Only this user's connections, channels, consumers or permissions.")
@click.option("--columns", help="Columns, separated by commas; `all` for all.")
@format_option
@click.argument("kind", metavar="KIND", type=SuggestingChoice(list(COLUMNS), {"errands": "jobs"}))
def list_kind(
    socket: Path,
    vhost: str | None,
    user: str | None,
    columns: str | None,
    form: str | None,
    kind: str,
) -> None:
    """Print the connections, queues, … of a running broker, of all virtual hosts.

    KIND is connections, channels, consumers, exchanges, queues, streams, bindings, transactions,
    jobs, leases, groups, vhosts, users, permissions or policies.

    The command uses the socket in the data directory of a broker on this machine, and needs the
    rights of the broker's system user. JSON has all columns unless --columns is given, and whole
    values. On a narrow terminal long texts are cut.
    """
    if user is not None and kind not in OF_USERS:
        raise click.UsageError(f"--user is for {', '.join(OF_USERS)}")
    if vhost is not None and kind in EVERYWHERE:
        raise click.UsageError(f"--vhost is not for {kind}")
    everywhere = kind in SHARED
    rows = list_items(socket, f"list {kind}", vhost=vhost, user=user, everywhere=everywhere)
    names: tuple[str, ...] = COLUMNS[kind]
    if columns == "all":
        first = next(rows, None)
        if first is None:
            return
        print_rows(itertools.chain([first], rows), list(first), form, wide=True)
        return
    if columns is not None:
        names = tuple(name.strip() for name in columns.split(",") if name.strip())
    print_rows(check_columns(rows, names), names, form, wide=columns is None)


def check_columns(rows: Iterator[Row], names: Sequence[str]) -> Iterator[Row]:
    """Yield the rows; an unknown column ends the command."""
    is_checked = False
    for row in rows:
        if not is_checked:
            for name in names:
                if name not in row:
                    raise click.UsageError(f"unknown column {name!r}; columns: {', '.join(row)}")
            is_checked = True
        yield row


@click.command()
@management_option
@click.option(
    "--vhost", help="The virtual host. [the default one for an exchange or a queue, otherwise all]"
)
@format_option
@click.argument("kind", metavar="KIND", type=SuggestingChoice([*WHOLE, *FOUND], {"errand": "job"}))
@click.argument("name")
def show(socket: Path, vhost: str | None, form: str | None, kind: str, name: str) -> None:
    """Print the details of the object NAME.

    KIND is connection, channel, consumer, exchange, queue, stream, transaction, job, lease,
    group, vhost or user. NAME is the number of a connection, the connection and number of a
    channel as in 17:1 or the name of a session, the tag of a consumer, the id of a transaction or
    job, or the group, queue or stream of a lease or group of readers. All objects of that name are
    printed.
    """
    if kind == "connection":
        print_facts(ask(socket, "show connection", id=parse_number(name)), form)
        return
    if kind in WHOLE:
        facts = ask(socket, f"show {QUEUE if kind == STREAM else kind}", name=name, vhost=vhost)
        if kind == STREAM and facts["type"] != STREAM:
            raise click.ClickException(f"queue '{name}' is not a stream")
        print_facts(facts, form)
        return
    if vhost is not None and f"{kind}s" in EVERYWHERE:
        raise click.UsageError(f"--vhost is not for a {kind}")
    count = 0
    everywhere = f"{kind}s" in SHARED
    for row in list_items(socket, f"list {kind}s", vhost=vhost, everywhere=everywhere):
        if name and name in lookup_names(row, FOUND[kind]):
            if count and form != "json":
                click.echo()
            print_facts(row, form)
            count += 1
    if not count:
        raise click.ClickException(f"there is no {kind} '{name}'")


def lookup_names(row: Row, fields: Sequence[str]) -> Iterator[str]:
    """Yield the names by which a user may refer to a row."""
    for field in fields:
        yield f"{row['connection']}:{row['number']}" if field == "number" else str(row[field])


@click.group(cls=Group)
def close() -> None:
    """Close client connections with a reason."""


REASON = click.option(
    "--reason", help="The reason that clients get, with code 320. [closed by an operator]"
)


@BY_SOCKET.command(close, "connection")
@REASON
@click.argument("number", metavar="ID", type=int)
def close_connection(socket: Path, reason: str | None, number: int) -> None:
    """Close the connection ID, as `headrace list connections` shows it."""
    ask(socket, "close connection", id=number, reason=reason)


@BY_SOCKET.command(close, "connections")
@REASON
@click.option("--user", help="The connections of this user.")
@click.option("--vhost", help="The connections in this virtual host.")
@click.option("--all", "everyone", is_flag=True, help="All connections.")
def close_connections(
    socket: Path, reason: str | None, user: str | None, vhost: str | None, everyone: bool
) -> str:
    """Close the connections of a user, of a virtual host, or all; print their number."""
    if user is None and vhost is None and not everyone:
        raise click.UsageError("give --user, --vhost or --all")
    answer = ask(socket, "close connections", user=user, vhost=vhost, all=everyone, reason=reason)
    return f"{answer['closed']} connections closed"


def parse_number(text: str) -> int:
    """Read the number of a connection."""
    if not text.isascii() or not text.isdigit():
        raise click.UsageError(f"{text!r} is not a connection number")
    return int(text)
