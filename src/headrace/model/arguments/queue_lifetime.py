# SPDX-License-Identifier: Apache-2.0
"""How long a queue lives and whose it is, as Qpid's brokers put it in arguments.

``qpid.lifetime_policy`` (Broker-J) and ``qpid.lifetime-policy`` (qpidd) say when a queue goes;
``qpid.exclusivity_policy`` says who may use it. What they say is said in terms of the flags
auto-delete and exclusive, which must not contradict them. Policies that are about links and
containers of AMQP 1.0 are refused where nothing here is like them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.model.errors import InvalidArgument, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.queue_registry import QueueRegistry

LIFETIME = ("qpid.lifetime_policy", "qpid.lifetime-policy")
EXCLUSIVITY = "qpid.exclusivity_policy"
OWNER = "x-headrace-principal"  # With which a queue of a user's is kept.

CONNECTION = "connection"
SESSION = "session"
PRINCIPAL = "principal"
LINK = "link"

EMPTY_CHECK_MS = 200  # Between two looks at a queue that goes once it is unused and empty.


class Lifetime(NamedTuple):
    """When a queue goes."""

    unused: bool | None = None  # With its last consumer; None: as its flag says.
    empty: bool = False  # But not before it is empty.
    drained: bool = False  # When it is empty again, whoever uses it.
    scope: str = ""  # With the CONNECTION or the SESSION that made it.


_LIVES = {
    "PERMANENT": Lifetime(unused=False),
    "MANUAL": Lifetime(unused=False),
    "DELETE_ON_CONNECTION_CLOSE": Lifetime(unused=False, scope=CONNECTION),
    "DELETE_ON_SESSION_END": Lifetime(unused=False, scope=SESSION),
    "DELETE_ON_NO_OUTBOUND_LINKS": Lifetime(unused=True),
    "DELETE_ON_NO_LINKS": Lifetime(unused=True),  # Nobody who publishes has a link.
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


class Owner:
    """Who may use a queue that is not simply one connection's or session's."""

    def __init__(self, connection: object, user: str) -> None:
        """Any part of a connection, or with None whoever is the user of that name."""
        self.connection = connection
        self.user = user

    def admits(self, other: object) -> bool:
        """Tell whether a connection or a session may use the queue."""
        if self.connection is not None:
            return other is self.connection or (
                getattr(other, "connection", None) is self.connection
            )
        return user_of(other) == self.user


def admits(holder: object, other: object) -> bool:
    """Tell whether who owns a queue is one that lets others use it, too."""
    return isinstance(holder, Owner) and holder.admits(other)


def key_of(holder: object) -> object:
    """Return whose end is the end of what an exclusive queue's owner owns."""
    return holder.connection if isinstance(holder, Owner) else holder


def kept_owner(arguments: Mapping[str, object]) -> Owner | None:
    """Return who owns a queue that was kept."""
    if _said(arguments.get(EXCLUSIVITY)) == "PRINCIPAL":
        return Owner(None, str(arguments.get(OWNER, "")))
    return None


def user_of(owner: object) -> str:
    """Return the name of the user of a connection or a session; "" when it has none."""
    return str(getattr(getattr(owner, "user", None), "name", ""))


def connection_of(owner: object) -> object:
    """Return the connection that a connection or a session is of."""
    connection = getattr(owner, "connection", None)
    return owner if connection is None else connection


def _said(value: object) -> str:
    return value.upper().replace("-", "_") if isinstance(value, str) else ""


def _wrong(name: str, arguments: Mapping[str, object], what: str) -> InvalidArgument:
    value = arguments[name]
    reason = _NOT_SERVED.get(_said(value), "there is no such policy")
    return InvalidArgument(f"invalid arg '{name}' for {what}: {value!r} is not served: {reason}")


def lifetime(arguments: Mapping[str, object], auto_delete: bool, what: str) -> Lifetime:
    """Return when a queue with these arguments goes; ``what`` names it in texts.

    Raises:
        InvalidArgument: a policy that is not served.
        PreconditionFailed: the policies, or one and the flag, contradict each other.
    """
    found: Lifetime | None = None
    for name in LIFETIME:
        if name not in arguments:
            continue
        life = _LIVES.get(_said(arguments[name]))
        if life is None:
            raise _wrong(name, arguments, what)
        if found is not None and life != found:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {what}: it contradicts '{LIFETIME[0]}'"
            )
        found = life
        # Temporary queues of Qpid's JMS client have the flag and a scope, which counts.
        if auto_delete and life.unused is False and not (life.drained or life.scope):
            raise PreconditionFailed(
                f"invalid arg '{name}' for {what}: {arguments[name]} contradicts 'auto_delete'"
            )
    return found or Lifetime()


def exclusivity(arguments: Mapping[str, object], exclusive: bool, what: str) -> str:
    """Return whose a queue with these arguments is; "" when the flag alone says it.

    Raises:
        InvalidArgument: a policy that is not served.
        PreconditionFailed: it contradicts the flag.
    """
    if EXCLUSIVITY not in arguments:
        return ""
    said = _said(arguments[EXCLUSIVITY])
    if said not in _OWNERS:
        raise _wrong(EXCLUSIVITY, arguments, what)
    policy = _OWNERS[said]
    if exclusive and policy not in (CONNECTION, SESSION):
        raise PreconditionFailed(
            f"invalid arg '{EXCLUSIVITY}' for {what}: {arguments[EXCLUSIVITY]} contradicts "
            "'exclusive'"
        )
    return policy


class Plan:
    """What the arguments and flags of a declaration say of a queue's life and owner."""

    def __init__(
        self, arguments: Mapping[str, object], exclusive: bool, auto_delete: bool, what: str
    ) -> None:
        """``what`` names the queue in texts.

        Raises:
            InvalidArgument: a policy that is not served.
            PreconditionFailed: the policies, or one and a flag, contradict each other.
        """
        self.life = lifetime(arguments, auto_delete, what)
        self.policy = exclusivity(arguments, exclusive, what)
        self.exclusive = exclusive
        self.auto_delete = auto_delete if self.life.unused is None else self.life.unused
        self._what = what

    @property
    def limited(self) -> bool:
        """Whether the queue is somebody's only as long as that one is there."""
        return self.policy in (CONNECTION, SESSION)

    @property
    def fleeting(self) -> bool:
        """Whether the queue goes by itself one day."""
        return self.auto_delete or bool(self.life.scope) or self.life.drained

    def owner(
        self, owner: object, session: object, arguments: Mapping[str, object]
    ) -> tuple[object, Mapping[str, object]]:
        """Return whose the queue is, None for anybody's, and the arguments to be kept of it.

        Raises:
            InvalidArgument: it would be a channel's, which owns nothing.
        """
        if self.policy == SESSION and session is not None:
            raise InvalidArgument(
                f"invalid arg '{EXCLUSIVITY}' for {self._what}: SESSION is not served: a channel "
                "owns no queues; CONNECTION is"
            )
        if self.policy == CONNECTION:
            return Owner(connection_of(owner), ""), arguments
        if self.policy == PRINCIPAL:
            user = user_of(owner)
            return Owner(None, user), {**arguments, OWNER: user}
        return (owner if self.exclusive or self.policy == SESSION else None), arguments

    def is_same_owner(self, holder: object, owner: object) -> bool:
        """Tell whether the queue's owner is who declares it again so."""
        if isinstance(holder, Owner):
            return self.policy != "" and holder.admits(owner)
        return holder is (owner if self.exclusive or self.policy == SESSION else None)


class QueueLifetimes:
    """The queues of one virtual host that go with a connection or a session, or when empty."""

    def __init__(self, vhost: QueueRegistry) -> None:
        self._vhost = vhost
        self._of: dict[object, dict[Queue, None]] = {}  # By connection or session.
        self._scopes: dict[Queue, object] = {}  # The other way round.
        self._empty: set[Queue] = set()  # Those that go only when they are empty,
        self._drained: dict[Queue, bool] = {}  # and those that go even in use: had they any?

    def begin(self, queue: Queue, plan: Plan, owner: object, session: object) -> None:
        """A queue is made by somebody."""
        life = plan.life
        queue.exclusive_only = plan.policy == LINK
        if life.scope:
            scope = owner if session is None else session
            if life.scope == CONNECTION:
                scope = connection_of(owner)
            self._scopes[queue] = scope
            self._of.setdefault(scope, {})[queue] = None
        if life.empty:
            self._empty.add(queue)
        if life.drained:
            self._await_drain(queue)

    def restore(self, queue: Queue) -> None:
        """A queue was kept over a restart."""
        if queue.arguments:
            plan = Plan(queue.arguments, False, False, "")
            queue.exclusive_only = plan.policy == LINK
            if plan.life.empty:
                self._empty.add(queue)
            if plan.life.drained:
                self._await_drain(queue)

    def end(self, scope: object) -> list[Queue]:
        """A connection or a session is over: return the queues that go with it."""
        return list(self._of.get(scope, ()))

    def goes_with_somebody(self, queue: Queue) -> bool:
        """Tell whether a queue goes when a connection or a session does."""
        return queue in self._scopes

    def forget(self, queue: Queue) -> None:
        """A queue is gone."""
        scope = self._scopes.pop(queue, None)
        if scope is not None:
            queues = self._of[scope]
            del queues[queue]
            if not queues:
                del self._of[scope]
        if queue in self._empty:
            self._empty.discard(queue)
            self._vhost.scheduler.remove(("unused", queue))
        if queue in self._drained:
            del self._drained[queue]
            self._vhost.scheduler.remove(("drained", queue))

    def stays(self, queue: Queue) -> bool:
        """Tell whether a queue that nobody uses stays until it is empty; then it is looked at."""
        if queue not in self._empty or not (queue.message_count() or queue.unacked_count):
            return False
        now_ms = self._vhost.counters.now_ms
        self._vhost.scheduler.put(
            ("unused", queue), now_ms + EMPTY_CHECK_MS, partial(self._check, queue)
        )
        return True

    def _check(self, queue: Queue, now_ms: int) -> int:
        """Look whether a queue is empty by now; return when to look again."""
        if queue.deleted or queue.consumer_count():
            return 0
        if queue.message_count() or queue.unacked_count:
            return now_ms + EMPTY_CHECK_MS
        self._vhost.queue_unused(queue)
        return 0

    def _await_drain(self, queue: Queue) -> None:
        """Look at a queue from time to time, until it has had messages and has none any more."""
        self._drained[queue] = False
        due_ms = self._vhost.counters.now_ms + EMPTY_CHECK_MS
        self._vhost.scheduler.put(("drained", queue), due_ms, partial(self._check_drain, queue))

    def _check_drain(self, queue: Queue, now_ms: int) -> int:
        """Delete a queue that is empty again; return when to look again."""
        if queue.deleted:
            return 0
        if queue.message_count() or queue.unacked_count:
            self._drained[queue] = True
        elif queue.published or self._drained[queue]:
            self._vhost.destruct(queue)
            return 0
        return now_ms + EMPTY_CHECK_MS
