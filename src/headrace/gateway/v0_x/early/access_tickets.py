# SPDX-License-Identifier: Apache-2.0
"""The access class of 0-8 and 0-9: tickets, a channel's rights on the resources of a realm.

A realm is a named set of exchanges and queues. A resource that a client declares with a ticket
belongs to the ticket's realm; any other belongs to every realm whose pattern finds its name. A user
with configure, write or read permission on the realm's name may have an active, write or read
ticket, and with any of these a passive one.

A ticket restricts permissions and never adds to them. Ticket 0, and ticket 1, which clients send
that never request one, stand for no ticket: permissions alone decide.

Ticket numbers are unique in a connection, so the use of one on a channel to which it was not
granted is refused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import ensure_state
from headrace.gateway.v0_x.errors import translate
from headrace.gateway.v0_x.resumable_state import ResumableState
from headrace.model.errors import AccessRefused, ModelError, NotAllowed, ResourceError
from headrace.protocol.codec_0_x import (
    AccessRequest,
    AccessRequestOk,
    ExchangeDeclare,
    MethodBase,
    QueueDeclare,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import ContentHandler, Handler
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost

NO_TICKET = 1  # The answer to clients of 0-9-1, which has no tickets.
REALMS_PRUNED_AT = 1024  # The resources with a realm at which deleted ones are removed.
TICKET_MIN = 2  # 0 and 1 stand for no ticket.
TICKET_MAX = 65535
TICKETS_MAX = 1024  # The maximum tickets of one connection.

PASSIVE = "passive"
ACTIVE = "active"
WRITE = "write"
READ = "read"
PERMISSIONS = {ACTIVE: "configure", WRITE: "write", READ: "read"}

# For each method but basic.publish: the right that it requires, the type of the resource, and the
# field with its name. `protocol.v0_x.content_frames.publish_frames` calls `check_publish` for the
# tickets above 1 of basic.publish.
# Keeps 0-9/exchange.declare.ticket#validity, 0-9/exchange.delete.ticket#validity,
# 0-9/queue.declare.ticket#validity, 0-9/queue.purge.ticket#01, 0-9/basic.consume.ticket#01,
# 0-9/basic.get.ticket#01, 0-9/file.consume.ticket#01, 0-9/file.publish.ticket#01,
# 0-9/stream.consume.ticket#01, 0-9/stream.publish.ticket#01, 0-9/message.transfer.ticket#01,
# 0-9/message.consume.ticket#01, 0-9/message.get.ticket#01.
REQUIRED_RIGHTS: dict[str, tuple[str, str, str]] = {
    "exchange.declare": (ACTIVE, "exchange", "exchange"),
    "exchange.delete": (ACTIVE, "exchange", "exchange"),
    "queue.declare": (ACTIVE, "queue", "queue"),
    "queue.bind": (ACTIVE, "queue", "queue"),
    "queue.unbind": (ACTIVE, "queue", "queue"),
    "queue.purge": (READ, "queue", "queue"),
    "queue.delete": (ACTIVE, "queue", "queue"),
    "basic.consume": (READ, "queue", "queue"),
    "basic.get": (READ, "queue", "queue"),
    "file.consume": (READ, "queue", "queue"),
    "file.publish": (WRITE, "exchange", "exchange"),
    "stream.consume": (READ, "queue", "queue"),
    "stream.publish": (WRITE, "exchange", "exchange"),
    "message.consume": (READ, "queue", "queue"),
    "message.get": (READ, "queue", "queue"),
    "message.transfer": (WRITE, "exchange", "destination"),
}


class Ticket:
    """The access of one channel to one realm (access.request)."""

    __slots__ = ("channel", "exclusive", "number", "realm", "rights", "vhost")

    def __init__(
        self,
        number: int,
        channel: Channel,
        vhost: str,
        realm: str,
        rights: frozenset[str],
        exclusive: bool,
    ) -> None:
        self.number = number
        self.channel = channel
        self.vhost = vhost
        self.realm = realm
        self.rights = rights
        self.exclusive = exclusive


class ConnectionTickets:
    """The tickets of all channels of one connection."""

    def __init__(self) -> None:
        self.by_number: dict[int, Ticket] = {}
        self.last = 0  # The number of the latest ticket.


def connection_tickets(connection: GatewayConnection) -> ConnectionTickets:
    """Return the tickets of a connection."""
    return ensure_state(connection, ConnectionTickets, ConnectionTickets)


class ChannelTickets(ResumableState):
    """The tickets of one channel, and the last publish that was checked."""

    def __init__(self, tickets: Tickets, connection: GatewayConnection, channel: Channel) -> None:
        self.tickets = tickets
        self.connection = connection
        self.channel = channel
        self.number = 0  # The ticket of the last publish with one; 0 has the next one checked.
        self.address = b""

    def move_to(self, connection: GatewayConnection) -> None:
        self.tickets.move(self.channel, self.connection, connection)
        self.connection = connection

    def end(self) -> None:
        tickets = connection_tickets(self.connection).by_number
        for ticket in [t for t in tickets.values() if t.channel is self.channel]:
            self.tickets.revoke(self.connection, ticket)


class Tickets:
    """The realms of a broker, and the tickets on them."""

    def __init__(self, realms: Callable[[], Mapping[str, Callable[[str], object]]]) -> None:
        """``realms()`` returns for each realm a search for the names of its resources."""
        self.realms = realms
        # The realms of resources that were declared with a ticket.
        self.resource_realms: dict[Queue | Exchange, str] = {}
        self.pruned_at = REALMS_PRUNED_AT
        self.by_realm: dict[tuple[str, str], dict[Ticket, None]] = {}  # Virtual host and realm.

    def ensure_tickets(self, connection: GatewayConnection, channel: Channel) -> ChannelTickets:
        """Return the tickets of a channel."""
        return ensure_state(
            channel, ChannelTickets, partial(ChannelTickets, self, connection, channel)
        )

    def request(
        self, connection: GatewayConnection, channel: Channel, method: AccessRequest
    ) -> MethodBase:
        """Answer access.request."""
        if not connection.is_early:
            return AccessRequestOk(ticket=NO_TICKET)
        return AccessRequestOk(ticket=self.grant(connection, channel, method).number)

    # Keeps 0-9/access.request.realm#validity, 0-9/access.request.exclusive#validity.
    def grant(
        self, connection: GatewayConnection, channel: Channel, method: AccessRequest
    ) -> Ticket:
        """Grant a ticket, in place of the one that the channel has on this realm.

        Raises:
            AccessRefused: the realm is unknown or closed to this user, or another channel's ticket
                excludes this one.
            ResourceError: the connection has too many tickets.
        """
        realm = method.realm
        vhost = connection.vhost.name
        rights = frozenset(r for r in (PASSIVE, ACTIVE, WRITE, READ) if getattr(method, r))
        if realm not in self.realms() or not self.may_use_realm(connection, realm, rights):
            raise AccessRefused(
                f"access to realm '{realm}' in vhost '{vhost}' refused for user "
                f"'{connection.user.name}'"
            )
        holders = self.by_realm.setdefault((vhost, realm), {})
        previous = [ticket for ticket in holders if ticket.channel is channel]
        if len(holders) > len(previous):
            others = (ticket for ticket in holders if ticket.channel is not channel)
            if method.exclusive or any(ticket.exclusive for ticket in others):
                raise AccessRefused(
                    f"realm '{realm}' in vhost '{vhost}' is in use"
                    if method.exclusive
                    else f"realm '{realm}' in vhost '{vhost}' is in exclusive use"
                )
        for ticket in previous:
            self.revoke(connection, ticket)
        ticket = Ticket(
            self.find_free_number(connection), channel, vhost, realm, rights, method.exclusive
        )
        connection_tickets(connection).by_number[ticket.number] = ticket
        self.ensure_tickets(connection, channel)
        self.by_realm.setdefault((vhost, realm), {})[ticket] = None
        return ticket

    def may_use_realm(
        self, connection: GatewayConnection, realm: str, rights: frozenset[str]
    ) -> bool:
        """Return True if a user's permissions on a realm's name allow these rights."""
        access, vhost = connection.context.access, connection.vhost.name
        permissions = {
            p for p in PERMISSIONS.values() if access.allowed(connection.user, vhost, p, realm)
        }
        if not permissions:
            return False
        return all(PERMISSIONS[right] in permissions for right in rights - {PASSIVE})

    def find_free_number(self, connection: GatewayConnection) -> int:
        """Return a number that no ticket of this connection has."""
        tickets = connection_tickets(connection)
        if len(tickets.by_number) >= TICKETS_MAX:
            raise ResourceError(f"more than {TICKETS_MAX} access tickets")
        number = tickets.last
        while True:
            number = number + 1 if TICKET_MIN <= number < TICKET_MAX else TICKET_MIN
            if number not in tickets.by_number:
                tickets.last = number
                return number

    def revoke(self, connection: GatewayConnection, ticket: Ticket) -> None:
        """Revoke a ticket; its number may be used again."""
        del connection_tickets(connection).by_number[ticket.number]
        self.check_again(ticket)
        key = (ticket.vhost, ticket.realm)
        holders = self.by_realm[key]
        del holders[ticket]
        if not holders:
            del self.by_realm[key]

    def check_again(self, ticket: Ticket) -> None:
        """Check the next publish with a ticket again."""
        state = (ticket.channel.plug_ins or {}).get(ChannelTickets)
        if isinstance(state, ChannelTickets):
            state.number = 0

    def move(
        self, channel: Channel, lost: GatewayConnection, connection: GatewayConnection
    ) -> None:
        """Move the tickets of a channel that is resumed over another connection.

        A ticket whose number is in use there is revoked.
        """
        before, after = connection_tickets(lost), connection_tickets(connection)
        for number, ticket in list(before.by_number.items()):
            if ticket.channel is not channel:
                continue
            if number in after.by_number:
                self.revoke(lost, ticket)
            else:
                after.by_number[number] = before.by_number.pop(number)
                after.last = max(after.last, number)

    # Keeps 0-9/access.request-ok#per-channel.
    def find(self, connection: GatewayConnection, channel: Channel, number: int) -> Ticket:
        """Return the ticket of that number.

        Raises:
            AccessRefused: the connection has no ticket of that number.
            NotAllowed: the ticket is another channel's (0-9/access.request-ok#per-channel).
        """
        ticket = connection_tickets(connection).by_number.get(number)
        if ticket is None:
            raise AccessRefused(f"unknown access ticket {number}")
        if ticket.channel is not channel:
            raise NotAllowed(f"access ticket {number} is of another channel")
        return ticket

    def check(
        self,
        connection: GatewayConnection,
        channel: Channel,
        number: int,
        right: str,
        resource_type: str,
        name: str,
    ) -> None:
        """Refuse the use of a resource that a ticket does not allow.

        Raises:
            AccessRefused: the ticket is unknown, lacks the right, or is for another realm.
            NotAllowed: the ticket is another channel's.
        """
        ticket = self.find(connection, channel, number)
        if right not in ticket.rights and not (right == PASSIVE and ACTIVE in ticket.rights):
            raise AccessRefused(f"access ticket {number} gives no {right} access")
        target = find_resource(connection.vhost, resource_type, name)
        if target is None:
            return
        realm = self.resource_realms.get(target)
        if realm is not None:
            is_in_realm = realm == ticket.realm
        else:
            search = self.realms().get(ticket.realm)
            is_in_realm = search is not None and bool(search(name or "amq.default"))
        if not is_in_realm:
            raise AccessRefused(
                f"{resource_type} '{name}' in vhost '{ticket.vhost}' is not in realm "
                f"'{ticket.realm}'"
            )

    def check_method(
        self, connection: GatewayConnection, channel: Channel, method: MethodBase
    ) -> None:
        """Refuse a method whose ticket does not give the right of ``REQUIRED_RIGHTS``."""
        number = getattr(method, "ticket", 0)
        if number < TICKET_MIN:
            return
        required = REQUIRED_RIGHTS.get(method.NAME)
        if required is None:
            return
        right, resource_type, field = required
        if right == ACTIVE and getattr(method, "passive", False):
            right = PASSIVE
        name = getattr(method, field)
        if resource_type == "queue" and not name and method.NAME != "queue.declare":
            name = channel.last_queue
        self.check(connection, channel, number, right, resource_type, name)

    # Keeps 0-9/basic.publish.ticket#01.
    def check_publish(
        self, connection: GatewayConnection, channel: Channel, number: int, address: bytes
    ) -> None:
        """Refuse a publish whose ticket does not allow it; caches the last ticket and address."""
        state = self.ensure_tickets(connection, channel)
        if number == state.number and address == state.address:
            return
        exchange = address[1 : 1 + address[0]].decode("utf-8", "replace")
        try:
            self.check(connection, channel, number, WRITE, "exchange", exchange)
        except ModelError as error:
            raise translate(error) from None
        state.number, state.address = number, address

    def add_to_realm(
        self,
        connection: GatewayConnection,
        channel: Channel,
        resource_type: str,
        method: ExchangeDeclare | QueueDeclare,
    ) -> None:
        """Add a resource that was just made with a ticket to the ticket's realm."""
        name = method.exchange if isinstance(method, ExchangeDeclare) else channel.last_queue
        target = find_resource(connection.vhost, resource_type, name)
        ticket = connection_tickets(connection).by_number.get(method.ticket)
        if target is None or ticket is None:
            return
        if len(self.resource_realms) >= self.pruned_at:
            self.resource_realms = {
                t: realm for t, realm in self.resource_realms.items() if not t.deleted
            }
            self.pruned_at = max(REALMS_PRUNED_AT, 2 * len(self.resource_realms))
        self.resource_realms[target] = ticket.realm
        for tickets in self.by_realm.values():  # Cached checks of publishes are void.
            for other in tickets:
                self.check_again(other)

    # --- Handlers -------------------------------------------------------------------------------

    def guard(self, handler: Handler) -> Handler:
        """Return a handler that checks the ticket of its method first, in 0-8 and 0-9."""

        def check_and_handle(
            connection: GatewayConnection, channel: Channel, method: MethodBase
        ) -> MethodBase | None:
            if connection.is_early:
                self.check_method(connection, channel, method)
            return handler(connection, channel, method)

        return check_and_handle

    def guard_content(self, handler: ContentHandler) -> ContentHandler:
        """Return a handler of a method with content that checks its ticket first."""

        def check_and_handle(
            connection: GatewayConnection,
            channel: Channel,
            method: MethodBase,
            header: bytes,
            body: bytes,
        ) -> MethodBase | None:
            self.check_method(connection, channel, method)
            return handler(connection, channel, method, header, body)

        return check_and_handle

    def extend_realm(self, resource_type: str, handler: Handler) -> Handler:
        """Return a handler of a declaration that adds a new resource to the ticket's realm."""

        def declare(
            connection: GatewayConnection, channel: Channel, method: MethodBase
        ) -> MethodBase | None:
            assert isinstance(method, ExchangeDeclare | QueueDeclare)
            if not connection.is_early or method.ticket < TICKET_MIN or method.passive:
                return handler(connection, channel, method)
            existing = find_resource(
                connection.vhost, resource_type, getattr(method, resource_type)
            )
            reply = handler(connection, channel, method)
            if existing is None:
                self.add_to_realm(connection, channel, resource_type, method)
            return reply

        return declare


def find_resource(vhost: VirtualHost, resource_type: str, name: str) -> Queue | Exchange | None:
    """Return the exchange or queue of that name, or None."""
    return vhost.exchanges.get(name) if resource_type == "exchange" else vhost.queues.get(name)
