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
    from headrace.gateway.connection.elsewhere import Elsewhere
    from headrace.gateway.security.client_connection import Identified
    from headrace.gateway.security.permissions import Rights
    from headrace.model.counters import Counters
    from headrace.model.policy.rules import Limits
    from headrace.model.ports import Store
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.errors import AmqpError

log = logging.getLogger(__name__)

REFUSALS = (ReplyCode.ACCESS_REFUSED, ReplyCode.RESOURCE_LOCKED)
REFUSALS_TO_OPEN = (ReplyCode.NOT_ALLOWED, ReplyCode.INVALID_PATH)

DECLARES = (EXCHANGE_DECLARE, QUEUE_DECLARE)  # Which find nothing only where they are passive.
# What changes definitions or drops messages: each is answered when that is durable.
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


def waits(method: object) -> bool:
    """Return True if a method of CHANGES may change something durable.

    Only declarations say whether they do.
    """
    return getattr(method, "durable", True) and not getattr(method, "passive", False)


class Options(TypedDict, total=False):
    """The options of :class:`Context`; sizes are in octets.

    ``authenticate(connection, mechanism, response)`` checks the login, now or later. It calls
    ``connection.logged_in(user)``, ``connection.login_refused()`` or
    ``connection.challenge(octets)``. ``offered(peer)`` are the mechanisms that a peer may use;
    without it all of ``mechanisms``. ``renew(connection, secret)`` checks new credentials and calls
    ``connection.renewed(user)`` or ``connection.not_renewed()``.

    With ``specification_qos``, basic.qos without ``global`` limits the channel and with it the
    connection, as the standard says; else consumer and channel, as the capability per_consumer_qos
    says. A consumer that holds a delivery for longer than ``consumer_timeout_ms`` (0: for ever)
    loses it, or its channel. ``identity`` tells this broker's data from others'.
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
    """One broker, as its connections see it."""

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
        self.introductions: dict[int, dict[str, object]] = {}  # Other properties, by connection.
        self.mechanisms = mechanisms
        self._offered = offered
        self.renew = renew
        self.on_end: list[Callable[[int], None]] = []  # Told the numbers of ended connections.
        self.peers: dict[int, RemotePeer] = {}  # The other ends of connections, by number.
        self.specification_qos = specification_qos
        self.consumer_timeout_ms = consumer_timeout_ms
        self.consumer_timeout_closes = consumer_timeout_closes
        self.identity = identity
        self.events = events if events is not None else Events(counters)
        self.connection_events = ConnectionEvents(self.events)
        self.offers = Offers() if offers is None else offers
        #: Makes a connection of 0-10 of number and whether it is from this machine.
        self.make_0_10: Callable[[int, bool], Endpoint] | None = None
        #: Makes the beginning of a connection that another broker relays; None: none is taken.
        self.make_relayed: Callable[[Context, int, bool], Endpoint] | None = None
        self.elsewhere: Elsewhere | None = None  # In a cluster.
        self.connections: dict[int, Client] = {}
        self.channels_ended: dict[int, ChannelTally] = {}  # By connection.
        self.next_number = 1

    def hosts_known(self, vhost: str) -> list[str]:
        """Return the hosts that a client of a virtual host may turn to.

        They are those of the setting ``known_hosts``, or else the brokers of the cluster, first
        those that live.
        """
        hosts = self.offers.known_hosts.get(vhost, "")
        if hosts or self.elsewhere is None:
            return hosts.split(",") if hosts else []
        return [str(broker) for broker in self.elsewhere.brokers()]

    def serves(self, vhost: str) -> bool:
        """Return True if clients that open a virtual host here are served at once."""
        virtual_host = self.vhosts.get(vhost)
        return virtual_host is not None and not virtual_host.frozen

    def pending_confirms(self, vhost: str) -> PendingConfirms:
        """Return the confirms that wait for a virtual host's store."""
        confirms = self.confirms_by_vhost.get(vhost)
        if confirms is None:
            confirms = self.confirms_by_vhost[vhost] = PendingConfirms(self.stores[vhost])
        return confirms

    # Keeps 0-9-1/s010, 0-9/connection.start.server-properties#required-fields, 0-10/s008.
    def introduction(self, connection: Client) -> dict[str, object]:
        """Return the server properties for this connection."""
        return self.introductions.pop(connection.number, self.server_properties)

    def peer(self, number: int) -> RemotePeer:
        """The other end of a connection."""
        return self.peers.get(number) or RemotePeer()

    def offered(self, number: int) -> list[str]:
        """The mechanisms that a connection may log in by."""
        if self._offered is None:
            return self.mechanisms.decode().split()
        return list(self._offered(self.peer(number)))

    def forget(self, connection: Client) -> None:
        """A connection is over, of whatever version."""
        number = connection.number
        self.connections.pop(number, None)
        self.introductions.pop(number, None)
        self.channels_ended.pop(number, None)
        self.connection_events.connection_closed(connection)
        self.quotas.leave(connection)
        self.peers.pop(number, None)
        for callback in self.on_end:
            callback(number)

    def channel_ended(
        self, vhost: VirtualHost, version: str, tally: ChannelTally, number: int = 0
    ) -> None:
        """Add what a channel or session has counted to the sums of what ended.

        ``number`` is that of its connection, or of its last one; 0: it had none.
        """
        if tally.ended:
            return
        tally.ended = True
        vhost.channels_ended.add(tally)
        self.counters.channels_ended.setdefault(version, ChannelTally()).add(tally)
        if number in self.connections:
            self.channels_ended.setdefault(number, ChannelTally()).add(tally)

    def log_failure(self, connection: Client, error: AmqpError) -> None:
        """Log the error of a client."""
        is_query = connection.current in DECLARES and error.code is ReplyCode.NOT_FOUND
        level = logging.INFO if is_query else logging.WARNING  # To ask for it is no mistake.
        log.log(level, "connection %d: %s", connection.number, error)
        if error.code in REFUSALS or (connection.vhost is None and error.code in REFUSALS_TO_OPEN):
            self.refused(connection, error.text)

    def not_offered(self, connection: Identified, mechanism: str) -> None:
        """Have the audit log note a login by a mechanism that there is not, or not here."""
        audit = self.access.audit
        if audit.active:
            audit.record(
                "login",
                peer=self.peer(connection.number),
                allowed=False,
                reason=f"mechanism {mechanism:.64} is not offered here",
                mechanism=mechanism,
            )

    def refused(self, connection: Identified, text: str) -> None:
        """Have the audit log note what a user was refused, unless it did that already."""
        access = self.access
        if access.audit.active and connection.user is not None and text != access.noted:
            access.audit.record(
                "permission",
                user=connection.user,
                peer=self.peer(connection.number),
                allowed=False,
                reason=text,
                vhost=None if connection.vhost is None else connection.vhost.name,
            )
        access.noted = ""

    def end_connection(self, connection: Client) -> None:
        """A connection is over: its exclusive queues go."""
        self.forget(connection)
        if connection.vhost is not None:
            connection.vhost.connection_closed(connection)
