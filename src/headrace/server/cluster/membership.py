# SPDX-License-Identifier: Apache-2.0
"""The steps by which a broker joins a cluster."""

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
    """A broker that is in a cluster."""

    cluster: Cluster
    members: Members


def join(settings: Settings) -> Joined:
    """Check the database, and enter this broker into it; blocks.

    Raises:
        StoreError: the URL is not valid, or another broker of the same name runs.
        OSError: the database may hold no cluster, or does not answer.
    """
    cluster = Cluster(
        Address(settings.cluster),
        standbys=settings.cluster_standbys,
        size_max=settings.cluster_size_max,
    )
    cluster.prepare()
    host, port = address_of(settings)
    name = settings.cluster_name or platform.node()
    members = Members(cluster, name, host, port, settings.cluster_lease_s)
    try:
        if not members.is_free():
            watch(members)
        members.join()
    except BaseException:
        members.close()
        raise
    return Joined(cluster, members)


def watch(members: Members) -> None:
    """Raise NameTakenError if the broker whose session holds the name has heartbeats.

    Without them it is a session of a machine that is gone, or of a broker that is suspended or cut
    off. A broker that is cut off delivers until its lease ends, so its session is ended no earlier.
    It then learns that the name is taken.
    """
    holder = members.read_holder()
    watch_s = max(WATCH_S, holder.lease_s or members.lease_s)
    until = time.monotonic() + watch_s
    while time.monotonic() < until:
        if members.is_free():
            return
        if members.read_holder().counter != holder.counter:
            raise NameTakenError(
                f"another broker named {members.name!r} runs in this cluster: set cluster_name"
            )
        time.sleep(BEAT_S / 2)
    members.oust()


def address_of(settings: Settings) -> tuple[str, int]:
    """Return where others reach this broker; the port is 0 until it listens on any free one."""
    if settings.cluster_address:
        host, _, port = settings.cluster_address.rpartition(":")
        return host.strip("[]"), int(port)
    host = settings.host.replace(",", " ").split()[0]
    return (platform.node() if host in EVERY_INTERFACE else host), settings.port
