# SPDX-License-Identifier: Apache-2.0
"""Exchanges that look at each message that comes through them.

Some number messages (``qpid.msg_sequence``), some drop what came before
(``x-message-deduplication``), some keep messages for queues that are bound later: the last one
(``qpid.ive``) or the last few (type ``x-recent-history``). An exchange that does none of this has
no :class:`ExchangeObserver`.

What an exchange keeps lies in a queue of the broker's own, bounded as any queue can be. That of a
durable exchange is durable, too: there a message stands in the journal beside its other queues, and
is there after a crash exactly when it was taken.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.model.arguments.number import number_of
from headrace.model.contents import UnreadableError
from headrace.model.exchange.binding import Binding
from headrace.model.exchange.deduplication import Ids, prefix_of
from headrace.model.exchange.exchange import IVE, SEQUENCE, Exchange
from headrace.model.exchange.history import LENGTH, LENGTH_DEFAULT, RecentHistoryExchange
from headrace.model.message import PAGED, Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.model.exchange.binding import Destination
    from headrace.model.host import RoutingHost
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

KEPT = "amq.headrace.kept."  # What the names of queues begin with that exchanges keep messages in.
KEPT_OCTETS_MAX = 64 << 20  # Of the bodies that one exchange keeps; the oldest go.
NO_STORE = "x-recent-history-no-store"  # The header of a message that is not to be kept.
RESERVED = 1024  # Numbers that a fact says are used, before they are.
_SEQUENCES = b"exchange/sequence/"


class ExchangeObserver:
    """What one exchange does with each message."""

    def __init__(self, vhost: RoutingHost, exchange: Exchange, kept: Queue | None) -> None:
        """``kept`` is the queue of what it keeps, if it keeps anything."""
        self.vhost = vhost
        self.exchange = exchange
        self.kept = kept
        self.numbers = bool(exchange.arguments.get(SEQUENCE))
        self.ids: Ids | None = None
        if exchange.deduplicates:
            self.ids = Ids(
                exchange.arguments,
                counters=vhost.counters,
                facts=vhost.facts if exchange.durable else None,
                prefix=prefix_of(b"x", exchange.name),
            )
        self._key = _SEQUENCES + exchange.name.encode()
        self._number = 0
        self._reserved = 0
        if exchange.durable:
            self._number = self._reserved = int.from_bytes(vhost.facts.get(self._key) or b"", "big")

    # --- Messages -----------------------------------------------------------------------------

    def is_duplicate(self, headers: Mapping[str, object]) -> bool:
        """Tell whether a message was taken before."""
        if self.ids is None:
            return False
        message_id = self.ids.id_of(headers)
        return message_id is not None and self.ids.knows(message_id)

    def keeps(self, headers: Mapping[str, object]) -> bool:
        """Tell whether a message is to be kept; without booleans (0-8, 0-9), 1 is true."""
        return self.kept is not None and headers.get(NO_STORE) != 1

    def stamps(self) -> dict[str, object]:
        """Return the headers that the next message gets."""
        if not self.numbers:
            return {}
        self._number += 1
        if self.exchange.durable and self._number > self._reserved:
            self._reserved = self._number + RESERVED
            self.vhost.facts.put(self._key, self._reserved.to_bytes(8, "big"))
        return {SEQUENCE: self._number}

    def check(self, lasting: bool) -> None:
        """Make sure that a message can be remembered.

        Raises:
            ResourceError: there is no room.
        """
        if self.ids is not None:
            self.ids.check(lasting)

    def note(self, headers: Mapping[str, object], lasting: bool) -> None:
        """A message was taken."""
        if self.ids is not None:
            message_id = self.ids.id_of(headers)
            if message_id is not None:
                self.ids.note(message_id, headers, lasting)

    # --- Bindings -----------------------------------------------------------------------------

    def bound(self, binding: Binding) -> None:
        """Something was bound to the exchange: give it what is kept."""
        if self.kept is None:
            return
        contents = self.vhost.contents
        for message in list(self._messages(self.kept)):
            if contents is None:
                self.vhost.send_kept(message, binding, "", {}, False)
                continue
            try:
                content = contents.read(message)
            except UnreadableError as error:
                log.warning("exchange %r: a message is not replayed: %s", self.exchange.name, error)
                continue
            if self._leads(binding, content.routing_key, content.headers):
                self.vhost.send_kept(
                    message, binding, content.routing_key, content.headers, content.persistent
                )

    def _leads(self, binding: Binding, routing_key: str, headers: Mapping[str, object]) -> bool:
        """Tell whether a message would take this binding, were it the only one."""
        if isinstance(self.exchange, RecentHistoryExchange):
            return True
        probe = type(self.exchange)("", arguments=self.exchange.arguments)
        probe.bind(Binding(probe, binding.destination, binding.routing_key, binding.arguments))
        into: dict[Destination, None] = {}
        probe.match(routing_key, lambda: headers, into)
        return bool(into)

    def _messages(self, kept: Queue) -> Iterator[Message]:
        """Give copies of what is kept, the oldest first."""
        store = self.vhost.store
        for message in kept.peek(0, self.vhost.counters.next_seq, KEPT_OCTETS_MAX << 4, []):
            if message.deadline_ms and message.deadline_ms <= self.vhost.counters.now_ms:
                continue
            paged = message.flags & PAGED
            try:
                if paged:
                    store.load(message)
            except OSError as error:
                log.error("exchange %r: a message is lost: %s", self.exchange.name, error)
                continue
            twin = message.copy()
            if paged:
                store.page_out(message)
            yield twin

    # --- Ends ---------------------------------------------------------------------------------

    def clear(self) -> None:
        """The exchange is no more: forget all."""
        if self.ids is not None:
            self.ids.clear()
        if self.vhost.facts.get(self._key) is not None:
            self.vhost.facts.put(self._key, None)


def kept_arguments(exchange: Exchange) -> dict[str, object] | None:
    """Return the arguments of the queue of what an exchange keeps; None when it keeps nothing."""
    length = 0
    if isinstance(exchange, RecentHistoryExchange):
        length = number_of(exchange.arguments.get(LENGTH, LENGTH_DEFAULT)) or LENGTH_DEFAULT
    elif exchange.arguments.get(IVE):
        length = 1
    if not length:
        return None
    return {"x-max-length": length, "x-max-length-bytes": KEPT_OCTETS_MAX}


def is_observed(exchange: Exchange) -> bool:
    """Tell whether an exchange looks at each message."""
    if exchange.deduplicates or exchange.arguments.get(SEQUENCE):
        return True
    return kept_arguments(exchange) is not None
