# SPDX-License-Identifier: Apache-2.0
"""The operation that streams the broker's events, until its client disconnects or ends it.

An item is ``{"kind", "at_ms", "facts"}``, named as by the exchange ``amq.rabbitmq.event``. More
events than ``BACKLOG_MAX`` that a client has not read are dropped; an item ``{"lost": n}`` tells
how many. A user is shown what its tags let it see.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

from headrace.server.config.json_values import as_json
from headrace.server.management.call import Refused

if TYPE_CHECKING:
    from headrace.model.events import Event
    from headrace.server.management.call import Answered, Call, Operation

BACKLOG_MAX = 10_000
STREAMS_MAX = 4  # At a time: a broker has room for few listeners.
BUSY_S = 10.0  # A busy line is sent after so long without an event.
ACCOUNTS = ("user.", "permission.", "topic.permission.", "parameter.")  # Administrators' events.
CLIENTS = ("connection.", "channel.", "consumer.")


class EventBacklog:
    """The events that one client has not been sent yet."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._waiting: deque[Event] = deque()
        self._lost = 0
        self._some = asyncio.Event()

    def hear(self, event: Event) -> None:
        """Take an event that the user may see."""
        if not sees(self._call, event):
            return
        if len(self._waiting) >= BACKLOG_MAX:
            self._lost += 1
        else:
            self._waiting.append(event)
        self._some.set()

    def wake(self) -> None:
        """End :meth:`wait`."""
        self._some.set()

    async def wait(self) -> None:
        """Wait for an event, for ``BUSY_S`` at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._some.wait(), BUSY_S)
        self._some.clear()

    async def send(self) -> None:
        """Send what waits."""
        if not self._waiting:
            await self._call.busy()
        while self._waiting:
            event = self._waiting.popleft()
            facts = {name: as_json(value) for name, value in event.facts.items()}
            await self._call.tell({"kind": event.kind, "at_ms": event.at_ms, "facts": facts})
        if self._lost:
            lost, self._lost = self._lost, 0
            await self._call.tell({"lost": lost})


async def stream_events(call: Call) -> Answered:
    """Send each event as an item, from now on."""
    broker = call.broker
    if broker.event_streams >= STREAMS_MAX:
        call.refuse("limit", f"{STREAMS_MAX} clients are told of events already")
    backlog = EventBacklog(call)
    broker.events.listen(backlog.hear)
    broker.event_streams += 1
    ending = asyncio.create_task(end_of(call))
    ending.add_done_callback(lambda _: backlog.wake())
    try:
        await call.busy()  # From here on no event is missed.
        while not ending.done():
            await backlog.wait()
            if call.user is not None and not broker.tickets.lasts(call.text("as")):
                call.refuse("refused", "the ticket has ended")
            await backlog.send()
        return {}
    finally:
        ending.cancel()
        broker.event_streams -= 1
        broker.events.ignore(backlog.hear)


async def end_of(call: Call) -> None:
    """Return when the client disconnects, or sends ``{"end": true}``."""
    line: Answered | None = {}
    while line is not None:
        try:
            line = await call.receive()
        except TimeoutError:  # It has nothing to say.
            continue
        except (Refused, OSError):
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


OPERATIONS: dict[str, Operation] = {"events": stream_events}
