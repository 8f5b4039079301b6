# SPDX-License-Identifier: Apache-2.0
"""A broker's entry into a cluster: it checks the database and registers its name and address."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, NamedTuple

from headrace.server.cluster.heartbeat import BEAT_S
from headrace.store.ledger.members import NameTakenError
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_members import Members
from headrace.store.ledger.postgres_session import Address

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings

EVERY_INTERFACE = ("0.0.0.0", "::")  # noqa: S104 - Compared with, not listened on.
WATCH_S = 6 * BEAT_S  # The least time for which a broker of the same name is watched.


class Joined(NamedTuple):
    """The cluster that a broker has joined, and its session there."""

    cluster: Cluster
    members: Members


def join(settings: Settings) -> Joined:
    """Check the database, and register this broker in it; blocks.

    Raises:
        StoreError: the URL is not valid, or another broker of the same name runs.
        OSError: the database does not answer, or cannot be used for a cluster.
    """
    cluster = Cluster(
        Address(settings.cluster),
        standbys=settings.cluster_standbys,
        size_max=settings.cluster_size_max,
    )
    cluster.prepare()
    host, port = advertised_address(settings)
    name = settings.cluster_name or platform.node()
    members = Members(cluster, name, host, port, settings.cluster_lease_s)
    try:
        if not members.is_free():
            oust_silent(members)
        members.join()
    except BaseException:
        members.close()
        raise
    return Joined(cluster, members)


def oust_silent(members: Members) -> None:
    """End the session that holds this broker's name, unless its broker has heartbeats; blocks.

    Without heartbeats the session is of a lost machine, or of a broker that is suspended or cut
    off. A broker that is cut off delivers until its lease ends, so its session is ended no earlier;
    it then learns that its name is taken.

    Raises:
        NameTakenError: the broker has heartbeats.
    """
    holder = members.read_holder()
    watch_s = max(WATCH_S, holder.lease_s or members.lease_s)
    deadline_s = time.monotonic() + watch_s
    while time.monotonic() < deadline_s:
        if members.is_free():
            return
        if members.read_holder().counter != holder.counter:
            raise NameTakenError(
                f"another broker named {members.name!r} runs in this cluster: set cluster_name"
            )
        time.sleep(BEAT_S / 2)
    members.seize_name()


def advertised_address(settings: Settings) -> tuple[str, int]:
    """Return the host and port at which other brokers reach this one.

    With the setting ``port = 0`` the port is 0 until the broker listens.
    """
    if settings.cluster_address:
        host, _, port = settings.cluster_address.rpartition(":")
        return host.strip("[]"), int(port)
    host = settings.host.replace(",", " ").split()[0]
    return (platform.node() if host in EVERY_INTERFACE else host), settings.port
