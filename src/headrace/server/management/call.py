# SPDX-License-Identifier: Apache-2.0
"""A request of an operator, and the shapes of the operations that serve it.

An operation is a function of a :class:`Call`, of one of three shapes:

- a plain function returns the answer, a dictionary;
- a generator makes a list: each dictionary that it yields is a line of the answer, each ``None`` a
  step of work without a line, and its return value is the last line. A step should take a few tens
  of microseconds, as the loop serves others after every :data:`SLICE_S`;
- a coroutine function may wait, report progress with :meth:`Call.send`, and :meth:`Call.receive`
  lines that follow the request. It returns the answer, or a generator as above.

Each resource has a module whose operations are decorated (:mod:`.operation_table`);
:mod:`.operations` joins them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from headrace.gateway.requests.requests import RequestService
from headrace.user_tags import ADMINISTRATOR, MONITOR

if TYPE_CHECKING:
    from headrace.gateway.security.user import User
    from headrace.model.events import Actor
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.managed_broker import ManagedBroker

log = logging.getLogger(__name__)

NUMBER_MAX = (1 << 63) - 1
TEXT_SIZE_MAX = 4096
# Seconds of steps before the loop serves others, which is the wait of a message that arrives
# meanwhile. With a shorter slice the turns of the loop would cost more than the steps.
SLICE_S = 0.0002

JsonLine = dict[str, object]  # A line of a request, or of its answer.
Steps = Generator[Mapping[str, object] | None, None, JsonLine]
Operation = Callable[["Call"], "JsonLine | Steps | Awaitable[JsonLine | Steps]"]
Row = Mapping[str, object]
Item = TypeVar("Item")


class OperationRefused(Exception):
    """A refused request; code and text go into the answer.

    The codes are those of :mod:`headrace.gateway.requests.requests`.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class ServedElsewhere(OperationRefused):
    """The request names a virtual host that another broker of the cluster serves."""

    def __init__(self, vhost: str, text: str) -> None:
        super().__init__("not-found", text)
        self.vhost = vhost


def sees_all(user: User | None) -> bool:
    """Return True if a user sees every virtual host and connection; None: the system user."""
    return user is None or not MONITOR.isdisjoint(user.tags)


def is_internal(queue: Queue) -> bool:
    """Return True if a queue is the broker's own, which no operator sees."""
    return bool(queue.is_hidden) or isinstance(queue.exclusive_owner, RequestService)


def live_queues(vhost: VirtualHost) -> Iterator[Queue]:
    """Return the queues of a virtual host, which may change during the iteration.

    A queue that is deleted meanwhile is left out: it counts among the deleted queues.
    """
    return (queue for queue in vhost.queues_in_order if not queue.deleted)


class Call:
    """One request of an operator, with access to its fields, its user and the broker."""

    def __init__(
        self,
        broker: ManagedBroker,
        request: Mapping[str, object],
        *,
        operator: str = "",
        actor: Actor | None = None,
        user: User | None = None,
        send: Callable[[JsonLine], Awaitable[None]] | None = None,
        busy: Callable[[], Awaitable[None]] | None = None,
        receive: Callable[[], Awaitable[JsonLine | None]] | None = None,
    ) -> None:
        """Make a call of an operation.

        Args:
            broker: the broker that serves the request.
            request: the fields of the request.
            operator: names the operator in the log.
            actor: names the operator in events.
            user: the user as whom the operator acts; None: the system user, with all rights.
            send: sends a line of the answer.
            busy: sends a keep-alive line.
            receive: returns the next line that follows the request; None at the end.
        """
        self.broker = broker
        self.actor = actor
        self.user = user
        self.request = request
        self.operator = operator
        self.forwarded = False  # True for a request of another broker, never forwarded again.
        self.passed_on = False  # True if another broker has answered the request.
        self._send = send
        self._busy = busy
        self._receive = receive

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Name the operator in the events of this block, which must not await."""
        events = self.broker.events
        events.actor = self.actor
        try:
            yield
        finally:
            events.actor = None

    def log(self, action: str) -> None:
        """Log an action of the operator, such as "drains the broker"."""
        log.warning("an operator (%s) %s", self.operator, action)

    async def send(self, item: JsonLine) -> None:
        """Send a line of the answer; waits while the operator does not read."""
        if self._send is not None:
            await self._send(item)

    async def durable(self, vhost: str) -> bool:
        """Wait until all records of a virtual host are durable; return False if the disk fails."""
        self.broker.reactor.turn()
        return await self.broker.unsynced.wait_for(vhost)

    async def busy(self) -> None:
        """Send a keep-alive line while the operation runs."""
        if self._busy is not None:
            await self._busy()

    async def receive(self) -> JsonLine | None:
        """Return the next object that follows the request; None at the end.

        Raises:
            OperationRefused: the line is not an object, or too long.
        """
        return None if self._receive is None else await self._receive()

    def refuse(self, code: str, text: str) -> NoReturn:
        """End the call with an error."""
        raise OperationRefused(code, text)

    def text(self, field: str, default: str | None = None, *, size_max: int = TEXT_SIZE_MAX) -> str:
        """Return a text field; without a default it must be present and not empty."""
        value = self.request.get(field)
        if value is None:
            value = default
        if not isinstance(value, str) or (not value and default is None):
            self.refuse("bad-request", f"'{field}' is missing or not a string")
        if len(value.encode("utf-8", "surrogatepass")) > size_max:
            self.refuse("bad-request", f"'{field}' has more than {size_max} bytes")
        return value

    def number(
        self, field: str, default: int | None = None, *, minimum: int = 0, maximum: int = NUMBER_MAX
    ) -> int:
        """Return an integer field from ``minimum`` to ``maximum``."""
        value = self.request.get(field)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse("bad-request", f"'{field}' is missing or not a whole number")
        if not minimum <= value <= maximum:
            self.refuse("bad-request", f"'{field}' is {value}, not between {minimum} and {maximum}")
        return value

    def flag(self, field: str, default: bool = False) -> bool:
        """Return a boolean field."""
        value = self.request.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse("bad-request", f"'{field}' must be true or false")
        return value

    # --- Visibility -------------------------------------------------------------------------------

    @property
    def sees_all(self) -> bool:
        """True where the tags of the user show every virtual host and connection."""
        return sees_all(self.user)

    @property
    def administers(self) -> bool:
        """True for the system user, and for users with the tag administrator."""
        return self.user is None or ADMINISTRATOR in self.user.tags

    def sees_vhost(self, name: str) -> bool:
        """Return True if the user sees the objects of a virtual host."""
        return self.sees_all or (self.user is not None and self.user.may_open(name))

    def sees_account(self, name: str) -> bool:
        """Return True if the user sees the permissions and limits of an account.

        Users see their own, administrators those of all accounts.
        """
        return self.administers or (self.user is not None and self.user.name == name)

    def sees_user(self, user: User | None) -> bool:
        """Return True if the user sees the connections of ``user``, which may be itself."""
        return self.sees_all or (user is not None and user.same_as(cast("User", self.user)))

    def vhost(self) -> VirtualHost:
        """Return the virtual host named in ``vhost``, or the default one.

        Raises:
            ServedElsewhere: another broker of the cluster serves it.
            OperationRefused: the virtual host does not exist, or the user may not see it.
        """
        name = self.text("vhost", self.broker.settings.default_vhost)
        vhost = self.broker.vhosts.get(name)
        if vhost is None and self.is_elsewhere(name):
            raise ServedElsewhere(name, self.missing(name))
        if vhost is None or not self.sees_vhost(name):
            self.refuse("not-found", self.missing(name))
        return vhost

    def vhost_filter(self) -> VirtualHost | None:
        """Return the virtual host named in ``vhost``; None where the request names none."""
        return None if self.request.get("vhost") is None else self.vhost()

    def is_elsewhere(self, vhost: str) -> bool:
        """Return True if another broker of the cluster serves a virtual host that the user sees.

        Return False for a request that another broker has forwarded.
        """
        broker = self.broker
        return (
            broker.node is not None
            and not self.forwarded
            and vhost not in broker.vhosts
            and vhost in broker.access.snapshot.vhosts
            and self.sees_vhost(vhost)
        )

    def missing(self, vhost: str) -> str:
        """Return in words why this broker does not serve a virtual host."""
        node = self.broker.node
        if node is None or vhost not in node.vhost_numbers() or not self.sees_vhost(vhost):
            return f"there is no virtual host '{vhost}'"
        server = self.broker.describe_server(vhost)
        return f"virtual host '{vhost}' is served by {server} of the cluster"

    def vhosts(self) -> list[VirtualHost]:
        """Return the virtual host named in ``vhost``, or all that the user sees."""
        if (vhost := self.vhost_filter()) is not None:
            return [vhost]
        return [vhost for vhost in self.broker.vhosts.values() if self.sees_vhost(vhost.name)]


def list_objects(
    call: Call,
    objects: Callable[[VirtualHost], Iterable[Item]],
    describe: Callable[[VirtualHost, Item], Row | None],
) -> Steps:
    """Yield the rows of the objects in the virtual hosts of a request.

    Args:
        call: the request.
        objects: returns the objects of a virtual host, which may change during the iteration.
        describe: returns the row of an object; None leaves it out.
    """
    count = 0
    for vhost in call.vhosts():
        for item in objects(vhost):
            row = describe(vhost, item)
            count += row is not None
            yield row
    return {"items": count}
