# SPDX-License-Identifier: Apache-2.0
"""``headrace cluster`` and ``headrace move``: brokers that share a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.commands import Group
from headrace.cli.management import BY_SOCKET, ask, list_items

if TYPE_CHECKING:
    from headrace.cli.output import Answer, Row

MOVE_S = 60.0


@click.group(cls=Group)
def cluster() -> None:
    """Show the brokers of a cluster, and which virtual hosts they serve."""


@BY_SOCKET.command(cluster, "status", facts=True)
def status(socket: Path) -> Answer:
    """Print the cluster, this broker's place in it, and the standbys of the database."""
    return ask(socket, "cluster status")


@BY_SOCKET.command(cluster, "brokers", columns=("name", "address", "state", "vhosts"))
def brokers(socket: Path) -> Iterator[Row]:
    """Print name, address, state and number of virtual hosts of each broker."""
    return list_items(socket, "list brokers")


@BY_SOCKET.command(cluster, "vhosts", columns=("vhost", "broker", "epoch", "behind", "trouble"))
def vhosts(socket: Path) -> Iterator[Row]:
    """Print the owner of each virtual host, and the entries that this broker's copy lacks."""
    return list_items(socket, "list owners")


@BY_SOCKET.command(cluster, "accept")
@click.argument("vhost")
def accept(socket: Path, vhost: str) -> str:
    """Let this broker serve VHOST without the entries that the database lost.

    While the database lacks confirmed entries, as after an asynchronous standby was promoted, no
    broker serves the virtual host. This broker's further entries are moved to a directory.
    """
    done = ask(socket, "accept loss", vhost=vhost)
    return f"vhost '{done['vhost']}' is served again; its further entries: {done['directory']}"


@BY_SOCKET.command(None, "move")
@click.argument("vhost")
@click.argument("broker")
def move(socket: Path, vhost: str, broker: str) -> str:
    """Let another broker of the cluster serve VHOST.

    Published messages are confirmed first. Then connections are closed with 320; clients find the
    virtual host at the other broker.
    """
    done = ask(socket, "move vhost", vhost=vhost, broker=broker, timeout_s=MOVE_S)
    return f"vhost '{done['vhost']}' is served by broker '{done['broker']}' ({done['took_s']} s)"
