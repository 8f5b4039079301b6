# SPDX-License-Identifier: Apache-2.0
"""State that the connections of one broker share, in any version."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Required, TypedDict

from headrace.gateway.connection.connection_events import ConnectionEvents
from headrace.gateway.connection.offers import Offers
from headrace.gateway.messages.pending_confirms import PendingConfirms
from headrace.gateway.security.limits import Quotas
from headrace.gateway.security.remote_peer import RemotePeer
from headrace.model.events import Events
from headrace.model.tallies import ChannelTally
from headrace.protocol.output import BufferPool
from headrace.spec.ids import EXCHANGE_DECLARE, QUEUE_DECLARE
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.gateway.connection.client import Client
    from headrace.gateway.connection.cluster_port import ClusterPort
    from headrace.gateway.security.client_connection import Identified
    from headrace.gateway.security.permissions import Rights
    from headrace.model.counters import Counters
    from headrace.model.policy.rules import Limits
    from headrace.model.ports import Store
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.errors import AmqpError

log = logging.getLogger(__name__)

# The errors that count as refusals: of a method, and of connection.open.
REFUSALS = (ReplyCode.ACCESS_REFUSED, ReplyCode.RESOURCE_LOCKED)
REFUSALS_TO_OPEN = (ReplyCode.NOT_ALLOWED, ReplyCode.INVALID_PATH)

DECLARES = (EXCHANGE_DECLARE, QUEUE_DECLARE)  # Only a passive declare fails with not-found.
# Methods that change definitions or drop messages; the answer waits until the change is durable.
CHANGES = frozenset(
    {
        "exchange.declare",
        "exchange.delete",
        "exchange.bind",
        "exchange.unbind",
        "queue.declare",
        "queue.bind",
        "queue.unbind",
        "queue.purge",
        "queue.delete",
    }
)


# Keeps 0-9-1/connection.close-ok#01, 0-9/connection.close-ok#reporting, 0-10/s029.
def log_lost_connection(number: int, *, is_open: bool) -> None:
    """Log that a socket was closed without a close, or without an answer to the broker's close."""
    if is_open:
        log.info("connection %d: lost without a close", number)
    else:
        log.info("connection %d: the connection ended without close-ok", number)


def is_durable_change(method: object) -> bool:
    """Return True if a method of CHANGES may change a durable definition.

    Methods without a field ``durable`` count as durable.
    """
    return getattr(method, "durable", True) and not getattr(method, "passive", False)


class Options(TypedDict, total=False):
    """The options of :class:`Context`; sizes are in bytes.

    ``authenticate(connection, mechanism, response)``, `LoginService.authenticate` of
    `headrace.server.login.login`, checks one step of a login. It calls, perhaps
    after it has returned, ``connection.accept_login(user)``, ``connection.refuse_login()`` or
    ``connection.challenge(data)``. ``offered(peer)`` returns the mechanisms that a peer may use;
    without it, peers may use all ``mechanisms``. ``renew(connection, secret)`` checks new
    credentials and calls ``connection.accept_secret(user)`` or ``connection.refuse_secret()``.

    With ``specification_qos``, basic.qos limits the channel, and with ``global`` the connection, as
    in the standard. Without it, basic.qos limits consumers, and with ``global`` the channel, as
    with the capability per_consumer_qos. A delivery that a consumer holds for longer than
    ``consumer_timeout_ms`` (0 is no limit) is requeued, or with ``consumer_timeout_closes`` closes
    the channel. ``identity`` identifies the broker's data directory.
    """

    access: Required[Rights]
    vhosts: Required[Mapping[str, VirtualHost]]
    stores: Required[Mapping[str, Store]]
    counters: Required[Counters]
    authenticate: Required[Callable[[Client, str, bytes], None]]
    frame_max: int
    channel_max: int
    heartbeat_s: int
    body_max: int
    output_max: int
    server_properties: Mapping[str, object] | None
    mechanisms: bytes
    specification_qos: bool
    consumer_timeout_ms: int
    consumer_timeout_closes: bool
    offers: Offers | None
    identity: str
    events: Events | None
    offered: Callable[[RemotePeer], Sequence[str]] | None
    renew: Callable[[Client, bytes], None] | None
    limits_of_user: Callable[[str], Limits] | None


class Context:
    """State that all connections of one broker share."""

    def __init__(
        self,
        *,
        access: Rights,
        vhosts: Mapping[str, VirtualHost],
        stores: Mapping[str, Store],
        counters: Counters,
        authenticate: Callable[[Client, str, bytes], None],
        frame_max: int = 131072,
        channel_max: int = 2047,
        heartbeat_s: int = 60,
        body_max: int = 128 << 20,
        output_max: int = 1 << 20,
        server_properties: Mapping[str, object] | None = None,
        mechanisms: bytes = b"PLAIN AMQPLAIN",
        specification_qos: bool = False,
        consumer_timeout_ms: int = 0,
        consumer_timeout_closes: bool = False,
        offers: Offers | None = None,
        identity: str = "",
        events: Events | None = None,
        offered: Callable[[RemotePeer], Sequence[str]] | None = None,
        renew: Callable[[Client, bytes], None] | None = None,
        limits_of_user: Callable[[str], Limits] | None = None,
    ) -> None:
        self.access = access
        self.vhosts = vhosts
        self.confirms_by_vhost = {name: PendingConfirms(store) for name, store in stores.items()}
        self.stores = stores
        self.counters = counters
        self.authenticate = authenticate
        self.pool = BufferPool()
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat_s = heartbeat_s
        self.body_max = body_max
        self.quotas = Quotas(body_max, limits_of_user)
        self.output_max = output_max
        self.server_properties = dict(server_properties or {})
        #: The server properties of ports that have their own, by the number of the connection.
        self.port_properties: dict[int, dict[str, object]] = {}
        self.mechanisms = mechanisms
        self._offered = offered
        self.renew = renew
        #: Called with the number of an ended connection.
        self.on_end: list[Callable[[int], None]] = []
        self.peers: dict[int, RemotePeer] = {}  # The clients' addresses, by connection number.
        self.specification_qos = specification_qos
        self.consumer_timeout_ms = consumer_timeout_ms
        self.consumer_timeout_closes = consumer_timeout_closes
        self.identity = identity
        self.events = events if events is not None else Events(counters)
        self.connection_events = ConnectionEvents(self.events)
        self.offers = Offers() if offers is None else offers
        #: Makes a connection of 0-10; its arguments are number and loopback.
        self.make_0_10: Callable[[int, bool], Endpoint] | None = None
        #: Makes a connection that another broker relays; None if the broker accepts none.
        self.make_relayed: Callable[[Context, int, bool], Endpoint] | None = None
        self.cluster: ClusterPort | None = None  # None for a broker without a cluster.
        self.connections: dict[int, Client] = {}
        self.channels_ended: dict[int, ChannelTally] = {}  # The sums by connection number.
        self.next_number = 1

    def known_hosts(self, vhost: str) -> list[str]:
        """Return the hosts that a client of a virtual host may connect to.

        These are the hosts of the setting ``known_hosts``; without it, the brokers of the cluster,
        running ones first.
        """
        hosts = self.offers.known_hosts.get(vhost, "")
        if hosts or self.cluster is None:
            return hosts.split(",") if hosts else []
        return [str(broker) for broker in self.cluster.brokers()]

    def serves(self, vhost: str) -> bool:
        """Return True if this broker serves a virtual host now."""
        virtual_host = self.vhosts.get(vhost)
        return virtual_host is not None and not virtual_host.is_frozen

    def pending_confirms(self, vhost: str) -> PendingConfirms:
        """Return the queue of confirms that wait for a virtual host's store."""
        confirms = self.confirms_by_vhost.get(vhost)
        if confirms is None:
            confirms = self.confirms_by_vhost[vhost] = PendingConfirms(self.stores[vhost])
        return confirms

    def pop_server_properties(self, connection: Client) -> dict[str, object]:
        """Return the server properties for the connection.start of a connection; call it once."""
        return self.port_properties.pop(connection.number, self.server_properties)

    def peer(self, number: int) -> RemotePeer:
        """Return the client's end of a connection; an empty one if it is unknown."""
        return self.peers.get(number) or RemotePeer()

    def offered(self, number: int) -> list[str]:
        """Return the SASL mechanisms that a connection may use."""
        if self._offered is None:
            return self.mechanisms.decode().split()
        return list(self._offered(self.peer(number)))

    def remove_connection(self, connection: Client) -> None:
        """Drop the state of an ended connection, and report its end."""
        number = connection.number
        self.connections.pop(number, None)
        self.port_properties.pop(number, None)
        self.channels_ended.pop(number, None)
        self.connection_events.report_connection_closed(connection)
        self.quotas.remove(connection)
        self.peers.pop(number, None)
        for callback in self.on_end:
            callback(number)

    def add_ended_channel(
        self, vhost: VirtualHost, version: str, tally: ChannelTally, number: int = 0
    ) -> None:
        """Add the tally of an ended channel or session to the sums of ended ones.

        ``number`` is the number of the connection that it had last; 0 for none.
        """
        if tally.ended:
            return
        tally.ended = True
        vhost.channels_ended.add(tally)
        self.counters.channels_ended.setdefault(version, ChannelTally()).add(tally)
        if number in self.connections:
            self.channels_ended.setdefault(number, ChannelTally()).add(tally)

    def log_failure(self, connection: Client, error: AmqpError) -> None:
        """Log an error that closes a channel or connection; audit it if it is a refusal."""
        is_query = connection.current in DECLARES and error.code is ReplyCode.NOT_FOUND
        level = logging.INFO if is_query else logging.WARNING  # A query is not an error.
        log.log(level, "connection %d: %s", connection.number, error)
        if error.code in REFUSALS or (connection.vhost is None and error.code in REFUSALS_TO_OPEN):
            self.record_refusal(connection, error.text)

    def record_unknown_mechanism(self, connection: Identified, mechanism: str) -> None:
        """Write a login by an unknown mechanism, or one that is not offered, to the audit log."""
        audit = self.access.audit
        if audit.active:
            audit.record(
                "login",
                peer=self.peer(connection.number),
                allowed=False,
                reason=f"mechanism {mechanism:.64} is not offered here",
                mechanism=mechanism,
            )

    def record_refusal(self, connection: Identified, text: str) -> None:
        """Write a refusal to the audit log, unless it was written already."""
        access = self.access
        if access.audit.active and connection.user is not None and text != access.last_audited:
            access.audit.record(
                "permission",
                user=connection.user,
                peer=self.peer(connection.number),
                allowed=False,
                reason=text,
                vhost=None if connection.vhost is None else connection.vhost.name,
            )
        access.last_audited = ""

    def end_connection(self, connection: Client) -> None:
        """Drop the state of an ended connection, and delete its exclusive queues."""
        self.remove_connection(connection)
        if connection.vhost is not None:
            connection.vhost.on_connection_closed(connection)
