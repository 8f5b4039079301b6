# SPDX-License-Identifier: Apache-2.0
"""Port of the cluster, for connections to virtual hosts that other brokers serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.gateway.connection.offers import HOSTS_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.gateway.connection.client import Client, RelayableClient


class ServingBroker(NamedTuple):
    """A broker of the cluster, and its address for AMQP."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def join_hosts(hosts: Iterable[str]) -> str:
    """Return as many hosts as fit in the short string of 0-8 and 0-9, separated by commas."""
    joined = ""
    for host in hosts:
        longer = f"{joined},{host}" if joined else host
        if len(longer.encode()) > HOSTS_BYTES_MAX:
            break
        joined = longer
    return joined


class ClusterPort(Protocol):
    """The other brokers of a broker's cluster."""

    def serving(self, vhost: str) -> ServingBroker | None:
        """Return the other broker that serves a virtual host; None if there is none."""

    def brokers(self) -> Sequence[ServingBroker]:
        """Return all brokers that have not left the cluster, running ones first."""

    def relay(self, connection: RelayableClient, vhost: str, served: Callable[[], None]) -> None:
        """Relay a connection that opens a virtual host to the broker that serves it.

        Call ``served`` if this broker serves it first. After a timeout the connection is closed as
        by :meth:`wait`.
        """

    def wait(self, connection: Client, vhost: str, served: Callable[[], None]) -> None:
        """Call ``served`` when a virtual host is served here or elsewhere.

        After a timeout the connection is closed with 320, so that the client tries again.
        """
