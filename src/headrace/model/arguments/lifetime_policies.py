# SPDX-License-Identifier: Apache-2.0
"""Lifetime and exclusivity of queues: the flags, and the policies of Qpid's brokers.

``qpid.lifetime_policy`` (Broker-J) and ``qpid.lifetime-policy`` (qpidd) are conditions on which a
queue is deleted. ``qpid.exclusivity_policy`` names the connections that may use it. These policies
extend the flags auto-delete and exclusive, and must not contradict them. Policies on AMQP 1.0 links
and containers are refused unless 0-9-1 or 0-10 has an equivalent.

The TTL of a queue, ``x-expires``, is elsewhere: `headrace.model.vhost.apply_policies` schedules it,
and `headrace.model.vhost.queue_registry` deletes the queue.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.model.errors import InvalidArgument, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.counters import Counters
    from headrace.model.queue.queue import Queue
    from headrace.model.scheduler import Scheduler

LIFETIME = ("qpid.lifetime_policy", "qpid.lifetime-policy")
EXCLUSIVITY = "qpid.exclusivity_policy"
OWNER = "x-headrace-principal"  # The argument with the user who owns a durable queue.

CONNECTION = "connection"
SESSION = "session"
PRINCIPAL = "principal"
LINK = "link"

EMPTY_CHECK_MS = 200  # The interval between two checks of a queue that is deleted when empty.


class Lifetime(NamedTuple):
    """The condition on which a queue is deleted."""

    unused: bool | None = None  # When it has no consumers; None if auto-delete decides.
    empty: bool = False  # Only when it has neither consumers nor messages.
    drained: bool = False  # When it becomes empty, even while it has consumers.
    scope: str = ""  # At the end of its CONNECTION or SESSION.


_LIFETIMES = {
    "PERMANENT": Lifetime(unused=False),
    "MANUAL": Lifetime(unused=False),
    "DELETE_ON_CONNECTION_CLOSE": Lifetime(unused=False, scope=CONNECTION),
    "DELETE_ON_SESSION_END": Lifetime(unused=False, scope=SESSION),
    "DELETE_ON_NO_OUTBOUND_LINKS": Lifetime(unused=True),
    "DELETE_ON_NO_LINKS": Lifetime(unused=True),  # Publishers have no links here.
    "DELETE_IF_UNUSED": Lifetime(unused=True),
    "DELETE_IF_EMPTY": Lifetime(unused=False, drained=True),
    "IN_USE": Lifetime(unused=True, empty=True),
    "DELETE_IF_UNUSED_AND_EMPTY": Lifetime(unused=True, empty=True),
}
_LINKS = "there are no links before AMQP 1.0"
_NOT_SERVED = {
    "DELETE_ON_CREATING_LINK_CLOSE": _LINKS,
    "CONTAINER": "there are no containers before AMQP 1.0",
    "SHARED_SUBSCRIPTION": _LINKS,
}
_OWNERS = {
    "NONE": "",
    "SESSION": SESSION,
    "CONNECTION": CONNECTION,
    "PRINCIPAL": PRINCIPAL,
    "LINK": LINK,
}


class QueueOwner:
    """An owner that admits several sessions: all sessions of a user, or of a connection."""

    def __init__(self, connection: object, user: str) -> None:
        """``connection`` admits its sessions; None admits every connection of the user."""
        self.connection = connection
        self.user = user

    def admits(self, client: object) -> bool:
        """Return True if a connection or session may use the queue."""
        if self.connection is not None:
            return client is self.connection or (
                getattr(client, "connection", None) is self.connection
            )
        return user_name(client) == self.user


def admits(queue_owner: object, client: object) -> bool:
    """Return True if a queue's owner is a `QueueOwner` that admits ``client``."""
    return isinstance(queue_owner, QueueOwner) and queue_owner.admits(client)


def lifetime_scope(queue_owner: object) -> object:
    """Return the connection or session at the end of which an owner's queues are deleted."""
    return queue_owner.connection if isinstance(queue_owner, QueueOwner) else queue_owner


def recovered_owner(arguments: Mapping[str, object]) -> QueueOwner | None:
    """Return the owner of a recovered queue."""
    if _policy_name(arguments.get(EXCLUSIVITY)) == "PRINCIPAL":
        return QueueOwner(None, str(arguments.get(OWNER, "")))
    return None


def user_name(owner: object) -> str:
    """Return the user name of a connection or session; "" if it has none."""
    return str(getattr(getattr(owner, "user", None), "name", ""))


def owning_connection(owner: object) -> object:
    """Return the connection of a session, or the connection itself."""
    connection = getattr(owner, "connection", None)
    return owner if connection is None else connection


def _policy_name(value: object) -> str:
    return value.upper().replace("-", "_") if isinstance(value, str) else ""


def _unsupported(name: str, arguments: Mapping[str, object], subject: str) -> InvalidArgument:
    value = arguments[name]
    reason = _NOT_SERVED.get(_policy_name(value), "there is no such policy")
    return InvalidArgument(f"invalid arg '{name}' for {subject}: {value!r} is not served: {reason}")


def lifetime(arguments: Mapping[str, object], auto_delete: bool, subject: str) -> Lifetime:
    """Return the lifetime of a queue with these arguments; ``subject`` names it in errors.

    Raises:
        InvalidArgument: the policy is not supported.
        PreconditionFailed: policies contradict each other or the flag.
    """
    declared: Lifetime | None = None
    for name in LIFETIME:
        if name not in arguments:
            continue
        life = _LIFETIMES.get(_policy_name(arguments[name]))
        if life is None:
            raise _unsupported(name, arguments, subject)
        if declared is not None and life != declared:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {subject}: it contradicts '{LIFETIME[0]}'"
            )
        declared = life
        # Temporary queues of Qpid's JMS client have the flag and a scope; the scope counts.
        if auto_delete and life.unused is False and not (life.drained or life.scope):
            raise PreconditionFailed(
                f"invalid arg '{name}' for {subject}: {arguments[name]} contradicts 'auto_delete'"
            )
    return declared or Lifetime()


def exclusivity(arguments: Mapping[str, object], exclusive: bool, subject: str) -> str:
    """Return the exclusivity of a queue with these arguments; "" if only the flag counts.

    Raises:
        InvalidArgument: the policy is not supported.
        PreconditionFailed: the policy contradicts the flag.
    """
    if EXCLUSIVITY not in arguments:
        return ""
    name = _policy_name(arguments[EXCLUSIVITY])
    if name not in _OWNERS:
        raise _unsupported(EXCLUSIVITY, arguments, subject)
    policy = _OWNERS[name]
    if exclusive and policy not in (CONNECTION, SESSION):
        raise PreconditionFailed(
            f"invalid arg '{EXCLUSIVITY}' for {subject}: {arguments[EXCLUSIVITY]} contradicts "
            "'exclusive'"
        )
    return policy


class LifetimePlan:
    """Lifetime and owner of a queue, from the arguments and flags of its declaration."""

    def __init__(
        self, arguments: Mapping[str, object], exclusive: bool, auto_delete: bool, subject: str
    ) -> None:
        """``subject`` names the queue in errors.

        Raises:
            InvalidArgument: a policy is not supported.
            PreconditionFailed: policies contradict each other or a flag.
        """
        self.life = lifetime(arguments, auto_delete, subject)
        self.policy = exclusivity(arguments, exclusive, subject)
        self.exclusive = exclusive
        self.auto_delete = auto_delete if self.life.unused is None else self.life.unused
        self._subject = subject

    @property
    def owner_bound(self) -> bool:
        """True if the queue is released at the end of its owner."""
        return self.policy in (CONNECTION, SESSION)

    @property
    def deletes_itself(self) -> bool:
        """True if the broker may delete the queue without a request."""
        return self.auto_delete or bool(self.life.scope) or self.life.drained

    # Keeps 0-9-1/s057, 0-9/queue.declare.exclusive#types.
    def owner(
        self, owner: object, session: object, arguments: Mapping[str, object]
    ) -> tuple[object, Mapping[str, object]]:
        """Return the owner, None for a shared queue, and the arguments to store.

        Raises:
            InvalidArgument: the owner would be a channel, which cannot own a queue.
        """
        if self.policy == SESSION and session is not None:
            raise InvalidArgument(
                f"invalid arg '{EXCLUSIVITY}' for {self._subject}: SESSION is not served: a "
                "channel owns no queues; CONNECTION is"
            )
        if self.policy == CONNECTION:
            return QueueOwner(owning_connection(owner), ""), arguments
        if self.policy == PRINCIPAL:
            user = user_name(owner)
            return QueueOwner(None, user), {**arguments, OWNER: user}
        return (owner if self.exclusive or self.policy == SESSION else None), arguments

    def is_same_owner(self, queue_owner: object, owner: object) -> bool:
        """Return True if the queue's owner may declare it again."""
        if isinstance(queue_owner, QueueOwner):
            return self.policy != "" and queue_owner.admits(owner)
        return queue_owner is (owner if self.exclusive or self.policy == SESSION else None)


class LifetimeHost(Protocol):
    """A virtual host that deletes queues at the end of their lifetime."""

    counters: Counters
    scheduler: Scheduler

    def on_queue_unused(self, queue: Queue) -> None:
        """Delete an auto-delete queue that has lost its last consumer."""

    def destruct(self, queue: Queue) -> None:
        """Delete a queue because its own lifetime policy requires it."""


class QueueLifetimes:
    """Queues that are deleted with a connection or session, or when empty."""

    def __init__(self, vhost: LifetimeHost) -> None:
        self._vhost = vhost
        self._by_scope: dict[object, dict[Queue, None]] = {}  # Queues by connection or session.
        self._scopes: dict[Queue, object] = {}  # The connection or session of each queue.
        self._empty: set[Queue] = set()  # Queues that are deleted when unused and empty.
        # Queues that are deleted when empty, even in use, with True once they had messages.
        self._drained: dict[Queue, bool] = {}

    def register(self, queue: Queue, plan: LifetimePlan, owner: object, session: object) -> None:
        """Register a new queue."""
        life = plan.life
        queue.exclusive_only = plan.policy == LINK
        if life.scope:
            scope = owner if session is None else session
            if life.scope == CONNECTION:
                scope = owning_connection(owner)
            self._scopes[queue] = scope
            self._by_scope.setdefault(scope, {})[queue] = None
        if life.empty:
            self._empty.add(queue)
        if life.drained:
            self._await_drain(queue)

    def restore(self, queue: Queue) -> None:
        """Register a recovered queue."""
        if queue.arguments:
            plan = LifetimePlan(queue.arguments, False, False, "")
            queue.exclusive_only = plan.policy == LINK
            if plan.life.empty:
                self._empty.add(queue)
            if plan.life.drained:
                self._await_drain(queue)

    def queues_to_delete(self, scope: object) -> list[Queue]:
        """Return the queues to delete with a closed connection or session."""
        return list(self._by_scope.get(scope, ()))

    def is_owner_bound(self, queue: Queue) -> bool:
        """Return True if a queue is deleted with a connection or session."""
        return queue in self._scopes

    def unregister(self, queue: Queue) -> None:
        """Remove a deleted queue, and cancel its checks."""
        scope = self._scopes.pop(queue, None)
        if scope is not None:
            queues = self._by_scope[scope]
            del queues[queue]
            if not queues:
                del self._by_scope[scope]
        if queue in self._empty:
            self._empty.discard(queue)
            self._vhost.scheduler.remove(("unused", queue))
        if queue in self._drained:
            del self._drained[queue]
            self._vhost.scheduler.remove(("drained", queue))

    def must_stay(self, queue: Queue) -> bool:
        """Return True if an unused queue stays until it is empty, and schedule checks."""
        if queue not in self._empty or not queue.has_messages():
            return False
        now_ms = self._vhost.counters.now_ms
        self._vhost.scheduler.put(
            ("unused", queue), now_ms + EMPTY_CHECK_MS, partial(self._check, queue)
        )
        return True

    def _check(self, queue: Queue, now_ms: int) -> int:
        """Delete a queue if it is empty; return the time of the next check, 0 if none."""
        if queue.deleted or queue.consumer_count():
            return 0
        if queue.has_messages():
            return now_ms + EMPTY_CHECK_MS
        self._vhost.on_queue_unused(queue)
        return 0

    def _await_drain(self, queue: Queue) -> None:
        """Check a queue regularly until it has had messages and is empty again."""
        self._drained[queue] = False
        due_ms = self._vhost.counters.now_ms + EMPTY_CHECK_MS
        self._vhost.scheduler.put(("drained", queue), due_ms, partial(self._check_drain, queue))

    def _check_drain(self, queue: Queue, now_ms: int) -> int:
        """Delete a queue that has become empty; return the time of the next check, 0 if none."""
        if queue.deleted:
            return 0
        if queue.has_messages():
            self._drained[queue] = True
        elif queue.published or self._drained[queue]:
            self._vhost.destruct(queue)
            return 0
        return now_ms + EMPTY_CHECK_MS
