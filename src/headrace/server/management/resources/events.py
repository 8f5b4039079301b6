# SPDX-License-Identifier: Apache-2.0
"""The operation that streams the broker's events, until its client disconnects or ends it.

An item is ``{"kind", "at_ms", "facts"}``, with the names of the exchange ``amq.rabbitmq.event``. If
a client does not read ``BACKLOG_MAX`` events, further ones are dropped; an item ``{"lost": n}`` has
their number. A user gets only the events that its tags permit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from headrace.server.config.json_values import as_json
from headrace.server.management.call import OperationRefused
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from headrace.model.events import Event
    from headrace.server.management.call import Call, JsonLine

operation = OperationTable()

BACKLOG_MAX = 10_000  # Events that may wait for a client to read.
SENT_MAX = 64  # Events that are sent before the ticket is checked again.
STREAMS_MAX = 8  # Streams at the same time: each one is a listener to the broker's events.
KINDS_MAX = 32  # Kinds that one request may name.
KIND_CHARACTERS_MAX = 255
BUSY_S = 10.0  # The time without an event after which a busy line is sent.
# The kinds of events that only administrators see, and those of the clients of one user, which that
# user sees, and users who see all objects.
ACCOUNTS = ("user.", "permission.", "topic.permission.", "parameter.")
CLIENTS = ("connection.", "channel.", "consumer.")


class EventBacklog:
    """The events that wait to be sent to one client."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._kinds = read_kinds(call)
        vhost = call.vhost_filter()
        # The name, as this object may outlive the virtual host.
        self._vhost = "" if vhost is None else vhost.name
        self._waiting: deque[Event] = deque()
        self._lost = 0
        self._ready = asyncio.Event()

    def queue_event(self, event: Event) -> None:
        """Queue an event of the requested kinds that the user may see."""
        if not self._matches(event) or not sees(self._call, event):
            return
        if len(self._waiting) >= BACKLOG_MAX:
            self._lost += 1
        else:
            self._waiting.append(event)
        self._ready.set()

    def _matches(self, event: Event) -> bool:
        if self._vhost and event.facts.get("vhost") != self._vhost:
            return False
        return not self._kinds or f"{event.kind}.".startswith(self._kinds)

    def wake(self) -> None:
        """End :meth:`wait`."""
        self._ready.set()

    async def wait(self) -> None:
        """Wait for an event, for ``BUSY_S`` at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), BUSY_S)
        self._ready.clear()

    async def send(self) -> None:
        """Send up to ``SENT_MAX`` queued events, or a busy line if there are none.

        If more wait, the next :meth:`wait` ends at once.
        """
        if not self._waiting:
            await self._call.busy()
        for _ in range(min(SENT_MAX, len(self._waiting))):
            event = self._waiting.popleft()
            facts = {name: as_json(value) for name, value in event.facts.items()}
            await self._call.send({"kind": event.kind, "at_ms": event.at_ms, "facts": facts})
        if self._lost:
            lost, self._lost = self._lost, 0
            await self._call.send({"lost": lost})
        if self._waiting:
            self._ready.set()


def read_kinds(call: Call) -> tuple[str, ...]:
    """Return the prefixes of the kinds that ``kinds`` requests; empty for all kinds.

    "queue" requests "queue.created" and "queue.deleted".
    """
    kinds = call.request.get("kinds")
    if kinds is None:
        return ()
    if not isinstance(kinds, list) or not 0 < len(kinds) <= KINDS_MAX:
        call.refuse("bad-request", f"'kinds' must be a list of 1 to {KINDS_MAX} kinds")
    if not all(isinstance(kind, str) and 0 < len(kind) <= KIND_CHARACTERS_MAX for kind in kinds):
        call.refuse("bad-request", f"a kind must have 1 to {KIND_CHARACTERS_MAX} characters")
    return tuple(f"{kind}." for kind in kinds)


@operation("events", LOOK, reads=True, fields="`kinds`, `vhost`")
async def stream_events(call: Call) -> JsonLine:
    """Send each event from now on as an item; ``kinds`` and ``vhost`` limit the events."""
    broker = call.broker
    if broker.event_streams >= STREAMS_MAX:
        call.refuse("limit", f"{STREAMS_MAX} clients receive events already")
    backlog = EventBacklog(call)
    broker.events.add_listener(backlog.queue_event)
    broker.event_streams += 1
    ending = asyncio.create_task(wait_for_end(call))
    ending.add_done_callback(lambda _: backlog.wake())
    try:
        await call.busy()  # Tells the client that it receives every event from now on.
        while not ending.done():
            await backlog.wait()
            if call.user is not None and not broker.tickets.is_valid(call.text("as")):
                call.refuse("refused", "the ticket has ended")
            await backlog.send()
        return {}
    finally:
        ending.cancel()
        broker.event_streams -= 1
        broker.events.remove_listener(backlog.queue_event)


async def wait_for_end(call: Call) -> None:
    """Wait until the client disconnects, or sends ``{"end": true}``."""
    line: JsonLine | None = {}
    while line is not None:
        try:
            line = await call.receive()
        except TimeoutError:  # The client is idle.
            continue
        except (OperationRefused, OSError):
            return


def sees(call: Call, event: Event) -> bool:
    """Return True if the user of a call may see an event."""
    if call.user is None:
        return True
    kind, facts = event.kind, event.facts
    if kind.startswith(ACCOUNTS):
        return call.administers
    if call.sees_all:
        return True
    if kind.startswith(CLIENTS):
        return facts.get("user_who_performed_action") == call.user.name
    vhost = facts.get("vhost")
    return isinstance(vhost, str) and call.sees_vhost(vhost)
