# SPDX-License-Identifier: Apache-2.0
"""The ports through which features use their virtual host.

A feature (leases, dead letters, transactions, jobs, …) gets one of these ports instead of the whole
:class:`headrace.model.vhost.virtual_host.VirtualHost`, which implements all of them. Tests
implement :class:`Host` in a few lines. The port of queues is `headrace.model.queue.queue_host`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.model.contents import Contents
    from headrace.model.counters import Counters
    from headrace.model.exchange.binding import Binding
    from headrace.model.exchange.exchange import Exchange, Headers, Observer
    from headrace.model.interceptor.interception import Interception
    from headrace.model.keyvalue import Facts
    from headrace.model.message import Message
    from headrace.model.policy.rules import Rules
    from headrace.model.ports import Files, Store
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler
    from headrace.model.vhost.chunked_list import ChunkedList
    from headrace.model.vhost.publishing_ids import PublishingIds


class Route(NamedTuple):
    """The queues that a message is routed to."""

    queues: tuple[Queue, ...]
    cacheable: bool  # True if exchange and routing key alone decide.
    interception: Interception | None = None  # Set where publishes are observed, stamped or traced.


class Host(Protocol):
    """The members of a virtual host that most features need."""

    name: str
    counters: Counters
    store: Store
    scheduler: Scheduler
    facts: Facts
    contents: Contents | None  # Reads and rewrites messages; None without a gateway, in tests.
    files: Files
    queues: dict[str, Queue]
    exchanges: dict[str, Exchange]

    def deliver(
        self, message: Message, queues: Iterable[Queue], persistent: bool, *, promised: bool = False
    ) -> int:
        """Enqueue a message; return the number of queues that refused it.

        With ``promised`` the queues do not refuse it for their length.
        """


class RoutingHost(Host, Protocol):
    """Routing of messages that the broker itself publishes or observes."""

    def route(self, exchange: str, routing_key: str, headers: Headers) -> Route:
        """Return the queues that a message reaches.

        Raises:
            NotFound: the exchange does not exist.
        """

    def follow(
        self,
        first: Exchange,
        routing_key: str,
        headers: Headers,
        queues: dict[Queue, None],
        alternates: int = ...,
        observers: dict[Observer, None] | None = None,
        copies: Sequence[str] = (),
        publisher: int = 0,
    ) -> bool:
        """Add the queues that an exchange leads to; return True if the route may be cached.

        ``alternates`` is the maximum number of alternate exchanges in a row. ``copies`` are further
        routing keys. ``publisher`` is the number of the publishing connection.
        """

    def send(
        self,
        message: Message,
        queues: Mapping[Queue, None],
        observers: Mapping[Observer, None],
        headers: Mapping[str, object],
        persistent: bool,
    ) -> None:
        """Deliver a message that the broker publishes, and pass it to its exchanges' observers."""

    def replay_kept(
        self,
        message: Message,
        binding: Binding,
        routing_key: str,
        headers: Mapping[str, object],
        persistent: bool,
    ) -> None:
        """Deliver a message from an exchange's history to a new binding."""


class TransactionHost(Host, Protocol):
    """A host of local and distributed transactions."""

    publishing_ids: PublishingIds

    def durable_queues(self) -> dict[int, Queue]:
        """Return the durable queues by id, deleted ones that still have messages included."""


class LeaseHost(Host, Protocol):
    """A host of leases, each of which is a hidden stream."""

    def make_hidden_stream(self, name: str, arguments: Mapping[str, object]) -> Queue:
        """Make a durable stream to which clients cannot publish.

        Raises:
            InvalidArgument: streams are not served.
            LimitReached: definitions would use more memory than they may.
        """

    def remove_hidden_stream(self, queue: Queue) -> None:
        """Delete a stream made by :meth:`make_hidden_stream`."""


class TopologyHost(Protocol):
    """A virtual host that declares and binds the streams of super streams."""

    name: str
    queues: dict[str, Queue]

    def check_room(self, name: str, more: int = 1) -> None:
        """Raise PreconditionFailed if ``more`` queues would exceed the limit."""

    def check_definition(self, memory: int, description: str, name: str = "") -> None:
        """Raise LimitReached if definitions would use more memory than they may."""

    def declare_queue(
        self, name: str = "", *, durable: bool = False, arguments: Mapping[str, object] | None
    ) -> Queue:
        """Declare a queue."""

    def bind(
        self,
        source: str,
        destination: tuple[str, str],
        routing_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Bind a queue to an exchange."""


class ExchangePolicyHost(Protocol):
    """A virtual host with exchanges to which policies apply."""

    name: str
    exchanges: dict[str, Exchange]
    rules: Rules

    def count_alternate(self, name: str | None, more: int) -> None:
        """Add ``more`` (1 or -1) to the number of users of an alternate exchange."""


class PolicyHost(ExchangePolicyHost, Protocol):
    """A virtual host with queues and exchanges to which policies apply."""

    counters: Counters
    scheduler: Scheduler
    queues: dict[str, Queue]
    queues_in_order: ChunkedList[Queue]
    # Called when a queue's consumer timeout has changed.
    on_timeout_changed: Callable[[Queue], None] | None

    def effective_arguments(self, queue: Queue) -> dict[str, object]:
        """Return a queue's arguments with policies and limits applied."""

    def expire_queue(self, queue: Queue, now_ms: int) -> int:
        """Delete a queue that was unused for its x-expires.

        Return the time of the next check, 0 for none.
        """
