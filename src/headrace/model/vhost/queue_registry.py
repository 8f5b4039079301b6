# SPDX-License-Identifier: Apache-2.0
"""The queues of a virtual host: declaration, ownership, expiry and deletion.

`headrace.model.vhost.queue_type` chooses the class of a queue;
`headrace.model.arguments.lifetime_policies` has the lifetimes and owners of Qpid's brokers.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from headrace.model.arguments import lifetime_policies
from headrace.model.arguments.memory_estimate import queue_memory
from headrace.model.arguments.no_local import has_no_local
from headrace.model.arguments.values import (
    QUEUE_ARGUMENTS,
    assert_same_arguments,
    assert_same_field,
    check_queue_arguments,
    queue_type,
)
from headrace.model.errors import (
    AccessRefused,
    InvalidArgument,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from headrace.model.events import SERVICES, Events, queue_facts, report_purged
from headrace.model.exchange.deduplication import ARGUMENT as DEDUPLICATION
from headrace.model.policy.effective_arguments import effective_arguments, is_own
from headrace.model.policy.unknown_arguments import (
    DEAD_LETTERS,
    dead_letter_queue,
    translate_arguments,
)
from headrace.model.queue.queue import Queue
from headrace.model.queue_kinds.deduplicating import DeduplicatingQueue
from headrace.model.queue_kinds.delayed import NAME as DELAYED
from headrace.model.queue_kinds.delayed import DelayedQueue
from headrace.model.queue_kinds.inspecting import InspectingQueue
from headrace.model.vhost import queue_type as kinds
from headrace.model.vhost.apply_policies import (
    RulesChange,
    configure,
    schedule_queue_expiry,
    schedule_retention,
)
from headrace.model.vhost.definitions import Definitions, QueueRecord
from headrace.model.vhost.topology import NO_ARGUMENTS, Topology

if TYPE_CHECKING:
    from headrace.model.counters import Counters
    from headrace.model.policy.rules import Rules
    from headrace.model.ports import Store
    from headrace.model.scheduler import Scheduler


LOST_PREFIX = "amq.lost-"  # Prefix of queues whose definitions were lost; the queue's id follows.
AUTO_DELETE_TIMEOUT = "qpid.auto_delete_timeout"  # Seconds that an unused auto-delete queue stays.

DELETIONS_PER_STEP = 256  # Queues of a closed connection that one step of the event loop deletes.

StreamMaker = Callable[..., Queue]


class QueueRegistry(Topology):
    """The queues of a virtual host by name and owner; the second of its three classes."""

    def __init__(
        self,
        name: str,
        store: Store,
        counters: Counters,
        definitions: Definitions,
        events: Events,
        scheduler: Scheduler,
        make_stream: StreamMaker | None,
    ) -> None:
        Topology.__init__(self, name, counters, definitions, events)
        self.store = store
        self.scheduler = scheduler
        self.make_stream = make_stream
        # True while every delivery is passed to ``before_delivery``.
        self.reports_deliveries = False
        self.declared_by: dict[Queue, str] = {}  # The name of the user who declared each queue.
        self.declared_queue_counts: dict[str, int] = {}  # Queues that each user declared.
        self.lifetimes = lifetime_policies.QueueLifetimes(self)
        #: Called with a queue when its consumer timeout has changed.
        self.on_timeout_changed: Callable[[Queue], None] | None = None
        self._owned: dict[object, dict[Queue, None]] = {}  # Exclusive queues by connection.
        # Queues of closed connections by former name, which later turns delete.
        self._ownerless: dict[str, Queue] = {}
        self._outliving: set[Queue] = set()  # Exclusive queues that outlive their owner.
        # Queues that were declared durable and are transient, because they are exclusive.
        self._durable_exclusive: set[Queue] = set()
        self.no_local: set[Queue] = set()  # Queues that refuse their own connection's publishes.
        self._internal_count = 0  # Queues that the broker declared for itself.
        self._deadline_hook = self._on_deadline
        self._change: RulesChange | None = None  # The change of rules that is being applied.

    # --- Implemented by the virtual host ----------------------------------------------------------

    @abstractmethod
    def _is_leased(self, queue: Queue) -> bool:
        """Return True if a lease of a queue is in use."""

    @abstractmethod
    def _end_deleted(self, queue: Queue, user: str) -> int:
        """End a deleted queue with its leases and groups; return the number of ready messages.

        ``user`` declared it.
        """

    # --- By name ----------------------------------------------------------------------------------

    # Keeps 0-9-1/s058, 0-9/queue.declare.exclusive#02, 0-10/s187.
    def find_queue(self, name: str, owner: object = None) -> Queue:
        """Return the queue of that name, if the connection ``owner`` may use it.

        Raises:
            NotFound: the queue does not exist.
            ResourceLocked: the queue is exclusive to another connection.
        """
        queue = self.queues.get(name)
        if queue is None or isinstance(queue, DelayedQueue):
            raise NotFound(f"no {self._queue_subject(name)}")
        if queue.is_hidden and not queue.is_stream:
            raise AccessRefused(f"{self._queue_subject(name)} is the broker's own")
        queue_owner = queue.exclusive_owner
        if (
            queue_owner is not None
            and queue_owner is not owner
            and not lifetime_policies.admits(queue_owner, owner)
        ):
            raise self._locked_error(name)
        return queue

    # Keeps 0-9-1/s051, 0-9-1/s055, 0-9-1/s056, 0-9/queue.declare.durable#pre-existence,
    # 0-9/queue.declare.auto-delete#pre-existence, 0-9/queue.declare.durable#persistence,
    # 0-9/queue.declare.durable#types, 0-10/s184, 0-10/s186.
    def declare_queue(
        self,
        name: str = "",
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, object] | None = None,
        owner: object = None,
        fresh_name: str = "",
        kept: bool = False,
        sticky: bool = False,
        user: str = "",
        session: object = None,
    ) -> Queue:
        """Return the queue of that name, making it if it does not exist.

        An empty name gets a generated one. ``owner`` is the client's connection, or the session
        where sessions own queues; ``session`` is the channel of a connection; ``user`` is the user.

        With ``kept`` an exclusive queue outlives its owner, unless it is an auto-delete queue, and
        another connection may own it then. With ``sticky`` an existing queue is returned unchanged,
        whatever properties the declaration has (0-9/queue.declare).
        """
        if passive:
            return self._find_declared(name, owner)
        existing = self.queues.get(name) if name else None
        if not arguments:
            arguments = NO_ARGUMENTS
        elif existing is None or not sticky:
            arguments = self.translate_arguments(arguments, name)
        if existing is not None:
            if sticky:
                self._lock_existing(existing, owner, exclusive=exclusive, kept=kept)
            else:
                self._check_same(existing, durable, exclusive, auto_delete, arguments, owner)
            self._count_redeclaration(existing)
            return existing
        name = self._choose_name(name, fresh_name)
        plan = lifetime_policies.LifetimePlan(
            arguments, exclusive, auto_delete, self._queue_subject(name)
        )
        arguments = self._check_type(name, arguments, plan, durable)
        dlq = self._dlq_to_declare(name, arguments)
        self.check_room(name, 2 if dlq else 1)
        lasting = durable and (kept or not exclusive) and not plan.life.scope
        queue_owner, arguments = plan.owner(owner, session, arguments)
        self._check_space(name, arguments, dlq, lasting)
        queue_id = 0
        if lasting:
            record = QueueRecord(0, name, plan.auto_delete, arguments, user)
            queue_id = self.definitions.save_queue(record)
        queue = self._make_queue(
            name,
            id=queue_id,
            durable=lasting,
            auto_delete=plan.auto_delete,
            exclusive_owner=queue_owner,
            arguments=arguments,
        )
        self._add_queue(queue, user)
        self.lifetimes.register(queue, plan, owner, session)
        self._add_owned(queue, plan, owner, durable=durable, kept=kept)
        if dlq:
            self.declare_queue(dlq, durable=durable, user=user)
        self._invalidate_routes()
        self._report_created(queue)
        return queue

    # Keeps 0-9-1/s050, 0-9/queue.declare.queue#default-name.
    def _choose_name(self, name: str, fresh_name: str) -> str:
        """Return the name of a new queue: a valid one, ``fresh_name``, or a generated one."""
        if not name:
            return fresh_name or self._fresh_name()
        self._check_name("queue", name)
        return name

    # Keeps 0-9-1/s052, 0-9/queue.declare.passive#passive.
    def _find_declared(self, name: str, owner: object) -> Queue:
        """Return the queue that a passive declaration names, and record its use."""
        queue = self.find_queue(name, owner)
        if AUTO_DELETE_TIMEOUT not in queue.arguments:  # Only the end of the last consumer counts.
            queue.used_ms = self.counters.now_ms
        return queue

    # Keeps 0-9/queue.declare.exclusive#02.
    def _lock_existing(self, queue: Queue, owner: object, *, exclusive: bool, kept: bool) -> None:
        """Check that ``owner`` may use a queue; if ``exclusive``, make it exclusive to it."""
        self.find_queue(queue.name, owner)
        if exclusive and queue.exclusive_owner is None:
            if not kept:
                raise self._locked_error(queue.name)
            self.lock_queue(queue, owner)

    def _count_redeclaration(self, queue: Queue) -> None:
        """Count the declaration of an existing queue, and record its use."""
        queue.used_ms = self.counters.now_ms
        self.events.churn.queues_declared += not is_own(queue.name)

    def _dlq_to_declare(self, name: str, arguments: Mapping[str, object]) -> str:
        """Return the name of the dead-letter queue to declare with a queue; "" if there is none."""
        dlq = dead_letter_queue(name) if arguments.get(DEAD_LETTERS) == 1 else ""
        return "" if dlq in self.queues else dlq

    def _check_type(
        self,
        name: str,
        arguments: Mapping[str, object],
        plan: lifetime_policies.LifetimePlan,
        durable: bool,
    ) -> Mapping[str, object]:
        """Refuse arguments that contradict each other or the queue's type.

        Return them with the virtual host's default type, if that applies.
        """
        default_type = self.rules.default_queue_type
        is_owned = plan.exclusive or plan.owner_bound
        plain = durable and not is_owned and not plan.deletes_itself
        if default_type != "classic" and plain and "x-queue-type" not in arguments:
            arguments = {**arguments, "x-queue-type": default_type}
        check_queue_arguments(arguments, self._queue_subject(name))
        kinds.check(arguments, self._queue_subject(name))
        if queue_type(arguments) != "classic":
            self._check_lasting(name, durable, is_owned, plan.deletes_itself)
            self._check_stream(name, arguments)
        return arguments

    def _check_space(
        self, name: str, arguments: Mapping[str, object], dlq: str, lasting: bool
    ) -> None:
        """Refuse a queue, with its dead-letter queue ``dlq``, if the disk or memory is full."""
        if is_own(name):
            return
        self._require(lasting)
        memory = queue_memory(name, arguments)
        if dlq:
            memory += queue_memory(dlq, NO_ARGUMENTS)
        self.check_definition(memory, "queue '{}'", name)

    def _add_owned(
        self,
        queue: Queue,
        plan: lifetime_policies.LifetimePlan,
        owner: object,
        *,
        durable: bool,
        kept: bool,
    ) -> None:
        """Register a new queue with its owner, whose end releases or deletes it."""
        if plan.life.scope and durable:
            self._durable_exclusive.add(queue)
        if plan.owner_bound:
            scope = lifetime_policies.lifetime_scope(queue.exclusive_owner)
            self._owned.setdefault(scope, {})[queue] = None
            self._outliving.add(queue)
        elif plan.exclusive:
            self._owned.setdefault(owner, {})[queue] = None
            if kept:
                self._outliving.add(queue)
            elif durable:
                self._durable_exclusive.add(queue)

    def _report_created(self, queue: Queue) -> None:
        """Count a new queue, and emit an event."""
        if not is_own(queue.name):
            self.events.churn.queues_declared += 1
            self.events.churn.queues_created += 1
        if self.events.has_listeners:
            self.events.emit("queue.created", **queue_facts(queue, self.name))

    # Keeps 0-9-1/s083, 0-9-1/s084, 0-9/queue.delete.if-unused#01, 0-9/queue.delete.if-empty#01,
    # 0-10/s193, 0-10/s194.
    def delete_queue(
        self,
        name: str,
        if_unused: bool = False,
        if_empty: bool = False,
        owner: object = None,
    ) -> int:
        """Delete a queue; return its number of ready messages, 0 if it does not exist."""
        if name not in self.queues:
            return 0
        queue = self.find_queue(name, owner)
        if queue.is_hidden:
            raise AccessRefused(f"{self._queue_subject(name)} is the broker's own")
        if if_unused and queue.consumer_count():
            raise PreconditionFailed(f"{self._queue_subject(name)} in use")
        if if_empty and (queue.message_count() or queue.held_count()):
            raise PreconditionFailed(f"{self._queue_subject(name)} not empty")
        self._require(queue.durable)
        return self._remove_queue(queue)

    # Keeps 0-9-1/queue.purge#02, 0-9/queue.purge#03.
    def purge_queue(self, queue: Queue) -> int:
        """Drop every ready message of a queue (not a stream); return their number.

        Purged messages are not kept: the store removes the segments that have no other messages.

        Raises:
            ResourceError: the queue is durable, and the disk fails.
        """
        self._require(queue.durable)
        count = queue.purge()
        if queue.durable:
            self.store.seal_changes()
        report_purged(self.events, self.name, queue, count)
        return count

    def queue_count(self) -> int:
        """Return the number of queues that clients declared."""
        return len(self.queues) - self._internal_count

    # --- Rules ------------------------------------------------------------------------------------

    def effective_arguments(self, queue: Queue) -> dict[str, object]:
        """Return the effective arguments of a queue: its own, with policies and limits applied."""
        return effective_arguments(self.rules, queue)

    def policy_names(self, queue: Queue) -> tuple[str, str]:
        """Return the names of a queue's policy and operator policy; empty for none."""
        policies = self.rules.policies.matching(queue_type(queue.arguments), queue.name)
        return policies[0].name if policies[0] else "", policies[1].name if policies[1] else ""

    def set_rules(self, rules: Rules) -> None:
        """Set new rules; they apply to existing queues and exchanges within a few turns."""
        former_rules, self.rules = self.rules, rules
        if former_rules.policies.same(rules.policies):
            return
        self._change = RulesChange(self, None if self._change is not None else former_rules)
        next_ms = self._apply_changed_rules(self.counters.now_ms)
        if next_ms:
            self.scheduler.put(("rules", self), next_ms, self._apply_changed_rules)

    def _apply_changed_rules(self, now_ms: int) -> int:
        """Apply changed rules in part; return the time of the next call, 0 if all are applied."""
        if self._change is not None and self._change.step():
            return now_ms + 1
        self._change = None
        return 0

    def translate_arguments(
        self, arguments: Mapping[str, object], name: str, *, strict: bool = False
    ) -> Mapping[str, object]:
        """Return the arguments of a queue with Headrace's argument added for each alias.

        With ``strict`` unknown names are refused, unless the virtual host has a rule for them.

        Raises:
            InvalidArgument: an argument is refused.
        """
        return translate_arguments(arguments, self._queue_subject(name), self._mode(strict), name)

    def configure(self, queue: Queue) -> None:
        """Set a queue's attributes from its effective arguments; the queue may be in use."""
        configure(self, queue)

    def _schedule_unindexing(self) -> None:
        self.scheduler.put(("bindings", self), self.counters.now_ms + 1, self._unindex_some)

    # --- Owners -----------------------------------------------------------------------------------

    def lock_queue(self, queue: Queue, owner: object) -> None:
        """Make a queue exclusive to an owner until the end of the owner.

        Raises:
            ResourceLocked: another connection owns it or consumes from it.
        """
        queue_owner = queue.exclusive_owner
        if queue_owner is owner or (
            queue_owner is not None and lifetime_policies.admits(queue_owner, owner)
        ):
            return
        if queue.exclusive_owner is not None or queue.consumer_count():
            raise self._locked_error(queue.name)
        queue.exclusive_owner = owner
        self._owned.setdefault(owner, {})[queue] = None
        self._outliving.add(queue)

    # Keeps 0-9-1/s058, 0-10/s188.
    def on_owner_end(self, owner: object) -> None:
        """Delete or release the exclusive queues of a closed connection or session."""
        to_delete: list[Queue] = []
        for queue in self._owned.pop(owner, ()):
            has_timeout = AUTO_DELETE_TIMEOUT in queue.arguments and queue.expires_ms >= 0
            if queue in self._outliving and (has_timeout or not queue.auto_delete):
                self._outliving.discard(queue)
                queue.exclusive_owner = None
                queue.used_ms = self.counters.now_ms
            else:
                to_delete.append(queue)
        self._delete_in_steps(to_delete)
        self.on_session_end(owner)

    def on_session_end(self, owner: object) -> None:
        """Delete the queues whose lifetime is bound to a closed connection, session or channel."""
        self._delete_in_steps(self.lifetimes.queues_to_delete(owner))

    def _delete_in_steps(self, queues: list[Queue]) -> None:
        """Delete queues; transient ones beyond ``DELETIONS_PER_STEP`` in later turns.

        A waiting queue loses its name at once, so that no client can use it. Durable queues are
        deleted in this turn, because the broker may stop before the next one.
        """
        for number, queue in enumerate(queues):
            if self.queues.get(queue.name) is not queue:
                continue  # The queue was deleted with another one, or is ownerless already.
            if number < DELETIONS_PER_STEP or queue.durable:
                self._remove_queue(queue)
            else:
                self._free_name(queue)
                self._ownerless[queue.name] = queue
        if self._ownerless:
            self._invalidate_routes()
            self.scheduler.put(("owners", self), self.counters.now_ms + 1, self._delete_some)

    def _delete_some(self, now_ms: int) -> int:
        """Delete some ownerless queues; return the time of the next call, 0 if none is left."""
        self.delete_ownerless(DELETIONS_PER_STEP)
        return now_ms + 1 if self._ownerless else 0

    def delete_ownerless(self, count: int | None = None) -> None:
        """Delete up to ``count`` ownerless queues; None deletes all of them."""
        for name in list(islice(self._ownerless, count)):
            queue = self._ownerless.get(name)
            if queue is not None:
                self._remove_queue(queue)

    def _locked_error(self, name: str) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked {self._queue_subject(name)}. It could be "
            "originally declared on another connection or the exclusive property value does not "
            "match that of the original declaration."
        )

    # --- Time -------------------------------------------------------------------------------------

    def on_queue_unused(self, queue: Queue) -> None:
        """Delete an auto-delete queue that has lost its last consumer."""
        if AUTO_DELETE_TIMEOUT in queue.arguments and queue.expires_ms >= 0:
            return  # It is deleted after its timeout.
        if self.queues.get(queue.name) is queue and not self.lifetimes.must_stay(queue):
            self._remove_queue(queue)

    def expire_queue(self, queue: Queue, now_ms: int) -> int:
        """Delete a queue that was unused for its ``x-expires``.

        Return the time of the next check, 0 for none.
        """
        if queue.deleted:
            return 0
        if queue.consumer_count() or self._is_leased(queue):
            return now_ms + queue.expires_ms
        due_ms = queue.used_ms + queue.expires_ms
        if due_ms > now_ms:
            return due_ms
        self._remove_queue(queue)
        return 0

    def _on_deadline(self, queue: Queue, deadline_ms: int) -> None:
        """Schedule the expiry of messages; called when the queue's first deadline moves earlier."""
        self.scheduler.put(queue, deadline_ms, queue.expire)

    # --- The broker's own -------------------------------------------------------------------------

    def make_hidden_stream(self, name: str, arguments: Mapping[str, object]) -> Queue:
        """Make a durable stream to which clients cannot publish.

        Raises:
            InvalidArgument: streams are not served.
            LimitReached: definitions would use more memory than they may.
        """
        if self.make_stream is None:
            raise InvalidArgument(f"{self._queue_subject(name)} cannot be: streams are not served")
        self.check_definition(queue_memory(name, arguments), "queue '{}'", name)
        queue_id = self.definitions.save_queue(QueueRecord(0, name, False, arguments))
        queue = self._make_queue(name, id=queue_id, durable=True, arguments=dict(arguments))
        self._add_queue(queue)
        self._invalidate_routes()
        return queue

    def make_delayed_queue(self, name: str) -> Queue:
        """Make the durable queue in which delayed messages wait."""
        queue_id = self.definitions.save_queue(QueueRecord(0, name, False, NO_ARGUMENTS))
        queue = self._make_queue(name, id=queue_id, durable=True, arguments=NO_ARGUMENTS)
        self._add_queue(queue)
        return queue

    def make_lost_queue(self, queue_id: int) -> Queue:
        """Make a durable queue for recovered messages whose queue has no definition."""
        name = f"{LOST_PREFIX}{queue_id}"
        self.definitions.keep_queue(QueueRecord(queue_id, name, False, NO_ARGUMENTS))
        queue = self._make_queue(name, id=queue_id, durable=True, arguments=NO_ARGUMENTS)
        self._add_queue(queue)
        self._invalidate_routes()
        return queue

    def remove_hidden_stream(self, queue: Queue) -> None:
        """Delete a stream made by :meth:`make_hidden_stream`."""
        self._remove_queue(queue)

    def destruct(self, queue: Queue) -> None:
        """Delete a queue because its own lifetime policy requires it."""
        if self.queues.get(queue.name) is queue:
            self._remove_queue(queue)

    # --- Inside -----------------------------------------------------------------------------------

    def _fresh_name(self) -> str:
        while True:
            name = f"amq.gen-{secrets.token_urlsafe(16)}"
            if name not in self.queues:
                return name

    # Keeps 0-9-1/s053, 0-9-1/s054, 0-9-1/s059.
    def _check_same(
        self,
        queue: Queue,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, object],
        owner: object,
    ) -> None:
        """Refuse a declaration whose properties differ from the existing queue's.

        Of two rules that contradict each other, 0-9-1/s053 applies: another ``auto_delete`` is
        refused. 0-9-1/s059 would ignore it.
        """
        subject = self._queue_subject(queue.name)
        plan = lifetime_policies.LifetimePlan(arguments, exclusive, auto_delete, subject)
        if not plan.is_same_owner(queue.exclusive_owner, owner):
            raise self._locked_error(queue.name)
        auto_delete = plan.auto_delete
        was_durable = queue.durable or queue in self._durable_exclusive
        assert_same_field(was_durable, durable, "durable", subject)
        assert_same_field(queue.auto_delete, auto_delete, "auto_delete", subject)
        check_queue_arguments(arguments, subject)
        assert_same_arguments(
            queue.arguments, arguments, QUEUE_ARGUMENTS, subject, self.rules.default_queue_type
        )

    def _check_lasting(self, name: str, durable: bool, exclusive: bool, auto_delete: bool) -> None:
        """Refuse properties that a quorum queue or stream cannot have."""
        for is_flawed, flaw in (
            (not durable, "non-durable"),
            (exclusive, "exclusive-owner"),
            (auto_delete, "auto-delete"),
        ):
            if is_flawed:
                raise PreconditionFailed(
                    f"invalid property '{flaw}' for {self._queue_subject(name)}"
                )

    def _check_stream(self, name: str, arguments: Mapping[str, object]) -> None:
        if queue_type(arguments) == "stream" and self.make_stream is None:
            raise InvalidArgument(
                f"invalid arg 'x-queue-type' for {self._queue_subject(name)}: streams are not "
                "served"
            )

    # Keeps 0-9-1/queue.declare#02, 0-9/queue.declare#minimum-queues, 0-10/s177.
    def check_room(self, name: str, more: int = 1) -> None:
        """Refuse more queues than the virtual host may have; ``name`` is the name of the first.

        Raises:
            PreconditionFailed: there is no room for ``more`` queues.
        """
        maximum = self.rules.limits.queues
        if 0 <= maximum < self.queue_count() + more and not is_own(name):
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({maximum}) is "
                "reached"
            )

    def _make_queue(
        self,
        name: str,
        *,
        id: int = 0,  # noqa: A002 - the name that Queue has for it.
        durable: bool = False,
        auto_delete: bool = False,
        exclusive_owner: object = None,
        arguments: Mapping[str, object],
    ) -> Queue:
        make: StreamMaker = kinds.queue_class(arguments) if arguments else Queue
        if queue_type(arguments) == "stream" and self.make_stream is not None:
            make = self.make_stream
        elif name == DELAYED:
            make = DelayedQueue
        elif arguments.get(DEDUPLICATION):
            make = DeduplicatingQueue
        queue = make(
            name,
            store=self.store,
            counters=self.counters,
            vhost=self,
            id=id,
            durable=durable,
            auto_delete=auto_delete,
            exclusive_owner=exclusive_owner,
            arguments=arguments,
        )
        if isinstance(queue, InspectingQueue):
            queue.set_up(dict(arguments))
        queue.reports_deliveries = self.reports_deliveries
        self.configure(queue)
        queue.on_deadline = self._deadline_hook
        return queue

    def _add_queue(self, queue: Queue, user: str = "") -> None:
        former = self._ownerless.get(queue.name)
        if former is not None:
            self._remove_queue(former)
        if user:
            self.declared_by[queue] = user
            self.declared_queue_counts[user] = self.declared_queue_counts.get(user, 0) + 1
        self.queues[queue.name] = queue
        queue.chunk = self.queues_in_order.append(queue)
        self._internal_count += queue.is_hidden or is_own(queue.name)
        self.definition_memory += queue_memory(queue.name, queue.arguments)
        self.count_alternate(queue.alternate_exchange, 1)
        queue.used_ms = self.counters.now_ms
        if has_no_local(queue.arguments):
            self.no_local.add(queue)
        schedule_queue_expiry(self, queue)
        schedule_retention(self, queue)

    def _free_name(self, queue: Queue) -> None:
        """Remove a queue from the names; clients cannot use it, and limits do not count it."""
        user = self.declared_by.get(queue, "")
        if user:
            count = self.declared_queue_counts.pop(user) - 1
            if count:
                self.declared_queue_counts[user] = count
        del self.queues[queue.name]
        self._internal_count -= queue.is_hidden or is_own(queue.name)

    def _remove_queue(self, queue: Queue) -> int:
        if self._ownerless.get(queue.name) is queue:
            del self._ownerless[queue.name]
        else:
            self._free_name(queue)
        user = self.declared_by.pop(queue, "")
        if queue.chunk is not None:
            self.queues_in_order.remove(queue, queue.chunk)
            queue.chunk = None
        self.definition_memory -= queue_memory(queue.name, queue.arguments)
        scope = lifetime_policies.lifetime_scope(queue.exclusive_owner)
        owned = self._owned.get(scope)
        if owned is not None:
            owned.pop(queue, None)
            if not owned:
                del self._owned[scope]
        self.lifetimes.unregister(queue)
        self._durable_exclusive.discard(queue)
        self._outliving.discard(queue)
        self.no_local.discard(queue)
        sources = self._unbind_destination(queue)
        self.scheduler.remove(queue)
        self.scheduler.remove((queue,))
        self.scheduler.remove(("age", queue))
        for lane in (queue.lanes or {}).values():
            self.scheduler.remove(lane)
        self._invalidate_routes()
        self._delete_unused(sources)
        if queue.name.startswith(SERVICES):  # Samplers do not count it.
            queue.notify_sampler()
        else:
            queue.merge_tally(self.queues_ended)
        count = self._end_deleted(queue, user)
        self.events.churn.queues_deleted += not is_own(queue.name)
        if self.events.has_listeners and not queue.is_hidden:
            self.events.emit("queue.deleted", name=queue.name, vhost=self.name)
        return count
