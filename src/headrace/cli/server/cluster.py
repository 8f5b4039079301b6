# SPDX-License-Identifier: Apache-2.0
"""``headrace cluster`` and ``headrace move``: brokers that share a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.commands import Group
from headrace.cli.management import BY_SOCKET, ask, listed

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
    return listed(socket, "list brokers")


@BY_SOCKET.command(cluster, "vhosts", columns=("vhost", "broker", "epoch", "behind", "trouble"))
def vhosts(socket: Path) -> Iterator[Row]:
    """Print who serves each virtual host, and the entries that this broker's copy lacks."""
    return listed(socket, "list owners")


@BY_SOCKET.command(cluster, "accept")
@click.argument("vhost")
def accept(socket: Path, vhost: str) -> str:
    """Let this broker serve VHOST without what the database lost.

    A database that lacks confirmed entries, as after an asynchronous standby was promoted, keeps
    the virtual host down. What this broker has beyond it is moved aside, and stays in a directory.
    """
    done = ask(socket, "accept loss", vhost=vhost)
    return f"vhost '{done['vhost']}' is as the database has it; what it had: {done['directory']}"


@BY_SOCKET.command(None, "move")
@click.argument("vhost")
@click.argument("broker")
def move(socket: Path, vhost: str, broker: str) -> str:
    """Let another broker of the cluster serve VHOST.

    What was published is confirmed first. Connections are closed with 320, and find the virtual
    host at the other broker.
    """
    done = ask(socket, "move vhost", vhost=vhost, broker=broker, timeout_s=MOVE_S)
    return f"vhost '{done['vhost']}' is served by broker '{done['broker']}' ({done['took_s']} s)"
