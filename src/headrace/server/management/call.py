# SPDX-License-Identifier: Apache-2.0
"""One request of an operator, as an operation sees it, and what operations are.

An operation is a function of a :class:`Call` with one of three shapes:

- it returns a dictionary, the answer;
- it is a generator, for lists: each dictionary it yields is a line of the answer, each ``None`` is
  a step of work without one, and what it returns is the last line. A step should take a few tens of
  microseconds: the loop is given back to others after every ``STEPS_PER_SLICE`` of them;
- it is a coroutine function, for what waits: it may :meth:`Call.tell` of its progress, and
  :meth:`Call.receive` lines that the operator sends after the request. What it returns is the
  answer, or a generator as above.

Each area has a module with its table ``OPERATIONS``; :mod:`.operations` puts them together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from headrace.model.events import Actor
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.broker import Broker

NUMBER_MAX = (1 << 63) - 1
TEXT_OCTETS_MAX = 4096

Answered = dict[str, Any]
Steps = Generator["Answered | None", None, Answered]
Operation = Callable[["Call"], "Answered | Steps | Awaitable[Answered | Steps]"]


class Refused(Exception):
    """A request that is not served; code and text go into the answer.

    The codes are those of :mod:`headrace.gateway.requests.requests`.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Call:
    """One request."""

    def __init__(
        self,
        broker: Broker,
        request: Mapping[str, Any],
        *,
        operator: str = "",
        actor: Actor | None = None,
        tell: Callable[[Answered], Awaitable[None]] | None = None,
        receive: Callable[[], Awaitable[Answered | None]] | None = None,
    ) -> None:
        """``operator`` says for the log who asks: a system user and a process; so does ``actor``
        for events.
        """
        self.broker = broker
        self.actor = actor
        self.request = request
        self.operator = operator
        self._tell = tell
        self._receive = receive

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Within, what happens is the operator's doing; nothing may be waited for there."""
        events = self.broker.events
        events.actor = self.actor
        try:
            yield
        finally:
            events.actor = None

    async def tell(self, item: Answered) -> None:
        """Send a line of the answer before its end; waits while the operator does not read."""
        if self._tell is not None:
            await self._tell(item)

    async def receive(self) -> Answered | None:
        """Return the next object that the operator sends after the request; None at their end.

        Raises:
            Refused: what came is no object, or too long.
        """
        return None if self._receive is None else await self._receive()

    def refuse(self, code: str, text: str) -> NoReturn:
        """End the call with an error."""
        raise Refused(code, text)

    def text(
        self, field: str, default: str | None = None, *, octets_max: int = TEXT_OCTETS_MAX
    ) -> str:
        """Return a field that is a text; without a default it must be there, and not be empty."""
        value = self.request.get(field)
        if value is None:
            value = default
        if not isinstance(value, str) or (not value and default is None):
            self.refuse("bad-request", f"'{field}' is missing, or no text")
        if len(value.encode("utf-8", "surrogatepass")) > octets_max:
            self.refuse("bad-request", f"'{field}' has more than {octets_max} octets")
        return value

    def number(
        self, field: str, default: int | None = None, *, least: int = 0, most: int = NUMBER_MAX
    ) -> int:
        """Return a field that is a whole number within bounds."""
        value = self.request.get(field)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse("bad-request", f"'{field}' is missing, or no whole number")
        if not least <= value <= most:
            self.refuse("bad-request", f"'{field}' is {value}, not within {least} and {most}")
        return value

    def flag(self, field: str, default: bool = False) -> bool:
        """Return a field that is true or false."""
        value = self.request.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse("bad-request", f"'{field}' is neither true nor false")
        return value

    def vhost(self) -> VirtualHost:
        """Return the virtual host that ``vhost`` names; without that, the default one."""
        name = self.text("vhost", self.broker.settings.default_vhost)
        found = self.broker.vhosts.get(name)
        if found is None:
            self.refuse("not-found", f"there is no virtual host '{name}'")
        return found

    def vhosts(self) -> list[VirtualHost]:
        """Return the virtual host that ``vhost`` names; without that, all of them."""
        if self.request.get("vhost") is not None:
            return [self.vhost()]
        return list(self.broker.vhosts.values())
