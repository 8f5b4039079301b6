# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts that other brokers of a cluster serve, as connections know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.gateway.connection.offers import HOSTS_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.gateway.connection.client import Client, RelayableClient


class ServingBroker(NamedTuple):
    """A broker of the cluster, and where AMQP is spoken with it."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def in_a_shortstr(hosts: Iterable[str]) -> str:
    """Return as many hosts as 0-8 and 0-9 have room for, with commas between."""
    text = ""
    for host in hosts:
        longer = f"{text},{host}" if text else host
        if len(longer.encode()) > HOSTS_BYTES_MAX:
            break
        text = longer
    return text


class Elsewhere(Protocol):
    """The cluster of a broker."""

    def serving(self, vhost: str) -> ServingBroker | None:
        """Return the other broker that serves a virtual host; None if there is none."""

    def brokers(self) -> Sequence[ServingBroker]:
        """Return all brokers that have not left, first those that live."""

    def relay(self, connection: RelayableClient, vhost: str, served: Callable[[], None]) -> None:
        """Pass a connection, which is to open a virtual host, through to the broker that serves it.

        Call ``served`` if that is this broker by then. If it takes too long, the connection is
        closed as by :meth:`wait`.
        """

    def wait(self, connection: Client, vhost: str, served: Callable[[], None]) -> None:
        """Call ``served`` when a virtual host is served here or elsewhere.

        If it takes too long, the connection is closed with 320, so that the client tries again.
        """
