# SPDX-License-Identifier: Apache-2.0
"""Access tickets of 0-8 and 0-9: a channel's right to use the resources of a realm.

A realm is a named set of exchanges and queues. What a client declares with a ticket belongs to the
ticket's realm; what was made otherwise belongs to every realm whose pattern finds its name. A user
may have an active, write or read ticket when they have configure, write or read permission on the
realm's name, and a passive one when they have any of these.

A ticket comes on top of the permissions and never adds to them. Ticket 0, and 1, which is customary
with clients that never ask for one, stand for no ticket: permissions alone decide.

The numbers of a connection's tickets are never those of another of its channels, so one that is
used where it was not granted is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.model.errors import AccessRefused, NotAllowed, ResourceError

TICKET_MIN = 2  # 0 and 1 stand for no ticket.
TICKET_MAX = 65535
TICKETS_MAX = 1024  # Of one connection.

PASSIVE = "passive"
ACTIVE = "active"
WRITE = "write"
READ = "read"
PERMISSIONS = {ACTIVE: "configure", WRITE: "write", READ: "read"}

# What each method asks of its ticket: the right, the kind of resource, and where its name is.
NEEDS: dict[str, tuple[str, str, str]] = {
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
    """What one channel may do in one realm."""

    __slots__ = ("channel", "exclusive", "number", "realm", "rights", "vhost")

    def __init__(
        self,
        number: int,
        channel: Any,
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


class Tickets:
    """The realms of a broker, and who holds tickets on them."""

    def __init__(self, realms: Mapping[str, Callable[[str], object]]) -> None:
        """``realms`` has for each name what tells whether a resource's name belongs to it."""
        self.realms = dict(realms)
        self.held: dict[tuple[str, str], dict[Ticket, None]] = {}  # By virtual host and realm.

    def request(self, connection: Any, channel: Any, method: Any) -> Ticket:
        """Grant a ticket, in place of the one that the channel has on this realm.

        Raises:
            AccessRefused: the realm is unknown or closed to this user, or somebody else's ticket
                excludes this one.
            ResourceError: the connection has too many tickets.
        """
        realm = method.realm
        vhost = connection.vhost.name
        rights = frozenset(r for r in (PASSIVE, ACTIVE, WRITE, READ) if getattr(method, r))
        if realm not in self.realms or not self.may(connection, realm, rights):
            raise AccessRefused(
                f"access to realm '{realm}' in vhost '{vhost}' refused for user "
                f"'{connection.user.name}'"
            )
        holders = self.held.setdefault((vhost, realm), {})
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
            self.drop(connection, ticket)
        ticket = Ticket(
            self.fresh_number(connection), channel, vhost, realm, rights, method.exclusive
        )
        connection.tickets[ticket.number] = ticket
        self.held.setdefault((vhost, realm), {})[ticket] = None
        return ticket

    def may(self, connection: Any, realm: str, rights: frozenset[str]) -> bool:
        """Tell whether a user's permissions on a realm's name allow these rights."""
        access, vhost = connection.context.access, connection.vhost.name
        having = {
            p for p in PERMISSIONS.values() if access.allowed(connection.user, vhost, p, realm)
        }
        if not having:
            return False
        return all(PERMISSIONS[right] in having for right in rights - {PASSIVE})

    def fresh_number(self, connection: Any) -> int:
        """Return a number that no ticket of this connection has."""
        if len(connection.tickets) >= TICKETS_MAX:
            raise ResourceError(f"more than {TICKETS_MAX} access tickets")
        number: int = connection.last_ticket
        while True:
            number = number + 1 if TICKET_MIN <= number < TICKET_MAX else TICKET_MIN
            if number not in connection.tickets:
                connection.last_ticket = number
                return number

    def drop(self, connection: Any, ticket: Ticket) -> None:
        """A ticket is void."""
        del connection.tickets[ticket.number]
        ticket.channel.ticket = 0  # A publish with it was checked: the next one is again.
        key = (ticket.vhost, ticket.realm)
        holders = self.held[key]
        del holders[ticket]
        if not holders:
            del self.held[key]

    def end_channel(self, connection: Any, channel: Any) -> None:
        """The tickets of a channel go with it."""
        for ticket in [t for t in connection.tickets.values() if t.channel is channel]:
            self.drop(connection, ticket)

    def move(self, channel: Any, lost: Any, connection: Any) -> None:
        """A channel is resumed over another connection: its tickets go with it.

        One whose number is taken there is void.
        """
        for number, ticket in list(lost.tickets.items()):
            if ticket.channel is not channel:
                continue
            if number in connection.tickets:
                self.drop(lost, ticket)
            else:
                connection.tickets[number] = lost.tickets.pop(number)
                connection.last_ticket = max(connection.last_ticket, number)

    def find(self, connection: Any, channel: Any, number: int) -> Ticket:
        """Return the ticket of that number.

        Raises:
            AccessRefused: there is none.
            NotAllowed: it is another channel's (0-9/access.request-ok#per-channel).
        """
        ticket: Ticket | None = connection.tickets.get(number)
        if ticket is None:
            raise AccessRefused(f"unknown access ticket {number}")
        if ticket.channel is not channel:
            raise NotAllowed(f"access ticket {number} is of another channel")
        return ticket

    def check(
        self, connection: Any, channel: Any, number: int, right: str, kind: str, name: str
    ) -> None:
        """Refuse the use of a resource that a ticket does not allow.

        Raises:
            AccessRefused: the ticket is unknown, lacks the right, or is for another realm.
            NotAllowed: the ticket is another channel's.
        """
        ticket = self.find(connection, channel, number)
        if right not in ticket.rights and not (right == PASSIVE and ACTIVE in ticket.rights):
            raise AccessRefused(f"access ticket {number} gives no {right} access")
        thing = resource(connection.vhost, kind, name)
        if thing is None:
            return
        if thing.realm:
            inside = thing.realm == ticket.realm
        else:
            inside = bool(self.realms[ticket.realm](name or "amq.default"))
        if not inside:
            raise AccessRefused(
                f"{kind} '{name}' in vhost '{ticket.vhost}' is not in realm '{ticket.realm}'"
            )

    def check_method(self, connection: Any, channel: Any, method: Any) -> None:
        """Refuse a method whose ticket does not allow it."""
        number = getattr(method, "ticket", 0)
        if number < TICKET_MIN:
            return
        need = NEEDS.get(method.NAME)
        if need is None:
            return
        right, kind, field = need
        if right == ACTIVE and getattr(method, "passive", False):
            right = PASSIVE
        name = getattr(method, field)
        if kind == "queue" and not name and method.NAME != "queue.declare":
            name = channel.last_queue
        self.check(connection, channel, number, right, kind, name)

    def own(self, connection: Any, channel: Any, method: Any, known: bool) -> None:
        """What was just made with a ticket belongs to the ticket's realm."""
        if known or method.ticket < TICKET_MIN or method.passive:
            return
        kind = method.NAME.split(".")[0]
        name = method.exchange if kind == "exchange" else channel.last_queue
        thing = resource(connection.vhost, kind, name)
        ticket = connection.tickets.get(method.ticket)
        if thing is not None and ticket is not None:
            thing.realm = ticket.realm
            for holders in self.held.values():  # Publishes that were checked before are again.
                for other in holders:
                    other.channel.ticket = 0


def resource(vhost: Any, kind: str, name: str) -> Any:
    """Return the exchange or queue of that name, or None."""
    return (vhost.exchanges if kind == "exchange" else vhost.queues).get(name)
