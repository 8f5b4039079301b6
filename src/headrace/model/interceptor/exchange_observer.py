# SPDX-License-Identifier: Apache-2.0
"""Exchanges that observe each message.

They number messages (``qpid.msg_sequence``), drop duplicates (``x-message-deduplication``), or keep
messages for later bindings: the last message (``qpid.ive``) or several (type ``x-recent-history``).
Other exchanges have no :class:`ExchangeObserver`.

Kept messages are in a hidden queue with a length limit. The hidden queue of a durable exchange is
durable: the journal has one record of a message for this queue and the target queues.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.model.arguments.values import parse_integer
from headrace.model.contents import UnreadableError
from headrace.model.exchange.binding import Binding
from headrace.model.exchange.deduplication import IdCache, fact_prefix
from headrace.model.exchange.exchange import IVE, SEQUENCE, Exchange
from headrace.model.exchange.fanout import LENGTH, LENGTH_DEFAULT, RecentHistoryExchange
from headrace.model.message import PAGED, Message, copy_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.model.exchange.binding import BindingDestination
    from headrace.model.host import RoutingHost
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

KEPT = "amq.headrace.kept."  # Prefix of the hidden queues' names.
KEPT_BYTES_MAX = 64 << 20  # Bytes of bodies that one exchange keeps; the oldest are dropped.
NO_STORE = "x-recent-history-no-store"  # A message with this header is not kept.
RESERVED = 1024  # Numbers reserved by one fact in advance.
_SEQUENCES = b"exchange/sequence/"


class ExchangeObserver:
    """The observer of one exchange."""

    def __init__(self, vhost: RoutingHost, exchange: Exchange, kept: Queue | None) -> None:
        """``kept`` is the queue of kept messages, if the exchange keeps any."""
        self.vhost = vhost
        self.exchange = exchange
        self.kept = kept
        self.numbers_messages = bool(exchange.arguments.get(SEQUENCE))
        self.ids: IdCache | None = None
        if exchange.deduplicates:
            self.ids = IdCache(
                exchange.arguments,
                counters=vhost.counters,
                facts=vhost.facts if exchange.durable else None,
                prefix=fact_prefix(b"x", exchange.name),
            )
        self._key = _SEQUENCES + exchange.name.encode()
        self._number = 0
        self._reserved = 0
        if exchange.durable:
            self._number = self._reserved = int.from_bytes(vhost.facts.get(self._key) or b"", "big")

    # --- Messages -----------------------------------------------------------------------------

    def is_duplicate(self, headers: Mapping[str, object]) -> bool:
        """Return True if a message with this id was accepted before."""
        if self.ids is None:
            return False
        message_id = self.ids.read_id(headers)
        return message_id is not None and self.ids.contains(message_id)

    def must_keep(self, headers: Mapping[str, object]) -> bool:
        """Return True if the exchange keeps a message; 0-8 and 0-9 send 1 for true."""
        return self.kept is not None and headers.get(NO_STORE) != 1

    def stamps(self) -> dict[str, object]:
        """Return the headers to add to the next message."""
        if not self.numbers_messages:
            return {}
        self._number += 1
        if self.exchange.durable and self._number > self._reserved:
            self._reserved = self._number + RESERVED
            self.vhost.facts.put(self._key, self._reserved.to_bytes(8, "big"))
        return {SEQUENCE: self._number}

    def check(self, persistent: bool) -> None:
        """Check that the id of a message can be stored.

        Raises:
            ResourceError: the virtual host has no room for another id.
        """
        if self.ids is not None:
            self.ids.check(persistent)

    def record_id(self, headers: Mapping[str, object], persistent: bool) -> None:
        """Record the id of an accepted message."""
        if self.ids is not None:
            message_id = self.ids.read_id(headers)
            if message_id is not None:
                self.ids.add_id(message_id, headers, persistent)

    # --- Bindings -----------------------------------------------------------------------------

    def replay_to(self, binding: Binding) -> None:
        """Pass the kept messages to a new binding."""
        if self.kept is None:
            return
        contents = self.vhost.contents
        for message in list(self._messages(self.kept)):
            if contents is None:
                self.vhost.replay_kept(message, binding, "", {}, False)
                continue
            try:
                content = contents.read(message)
            except UnreadableError as error:
                log.warning("exchange %r: a message is not replayed: %s", self.exchange.name, error)
                continue
            if self._matches(binding, content.routing_key, content.headers):
                self.vhost.replay_kept(
                    message, binding, content.routing_key, content.headers, content.persistent
                )

    def _matches(self, binding: Binding, routing_key: str, headers: Mapping[str, object]) -> bool:
        """Return True if this binding alone would match a message."""
        if isinstance(self.exchange, RecentHistoryExchange):
            return True
        probe = type(self.exchange)("", arguments=self.exchange.arguments)
        probe.bind(Binding(probe, binding.destination, binding.routing_key, binding.arguments))
        matched: dict[BindingDestination, None] = {}
        probe.match(routing_key, lambda: headers, matched)
        return bool(matched)

    def _messages(self, kept: Queue) -> Iterator[Message]:
        """Yield copies of the kept messages, oldest first."""
        store = self.vhost.store
        for message in kept.ready.peek(0, self.vhost.counters.next_seq, KEPT_BYTES_MAX << 4, []):
            if message.deadline_ms and message.deadline_ms <= self.vhost.counters.now_ms:
                continue
            paged = message.flags & PAGED
            try:
                if paged:
                    store.load(message)
            except OSError as error:
                log.error("exchange %r: a message is lost: %s", self.exchange.name, error)
                continue
            message_copy = copy_message(message)
            if paged:
                store.page_out(message)
            yield message_copy

    # --- Deletion -----------------------------------------------------------------------------

    def clear(self) -> None:
        """Remove the ids and the fact of a deleted exchange."""
        if self.ids is not None:
            self.ids.clear()
        if self.vhost.facts.get(self._key) is not None:
            self.vhost.facts.put(self._key, None)


def kept_arguments(exchange: Exchange) -> dict[str, object] | None:
    """Return the arguments of the hidden queue; None if the exchange keeps no messages."""
    length = 0
    if isinstance(exchange, RecentHistoryExchange):
        length = parse_integer(exchange.arguments.get(LENGTH, LENGTH_DEFAULT)) or LENGTH_DEFAULT
    elif exchange.arguments.get(IVE):
        length = 1
    if not length:
        return None
    return {"x-max-length": length, "x-max-length-bytes": KEPT_BYTES_MAX}


def is_observed(exchange: Exchange) -> bool:
    """Return True if an exchange observes each message."""
    if exchange.deduplicates or exchange.arguments.get(SEQUENCE):
        return True
    return kept_arguments(exchange) is not None
