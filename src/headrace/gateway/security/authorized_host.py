# SPDX-License-Identifier: Apache-2.0
"""Changes of exchanges, queues and bindings by clients, with all checks.

An :class:`AuthorizedHost` is a virtual host as one user may change it. Each method checks names,
permissions and quotas by the rules of the client's version, and then has the model do the work.
Clients of all versions and QMF go through it; they only translate arguments, answers and errors.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from headrace.gateway.security.permissions import KEYS_KEPT
from headrace.model.arguments.aliases import ALTERNATES
from headrace.model.arguments.values import QUEUE_ARGUMENTS, assert_same_arguments
from headrace.model.errors import InvalidArgument, NotAllowed, NotFound, NotImplementedHere
from headrace.model.exchange.binding import EXCHANGE, QUEUE, Binding
from headrace.model.exchange.registry import TYPES, known_arguments
from headrace.model.exchange.topic import TopicExchange
from headrace.model.policy.unknown_arguments import DEAD_LETTERS, dead_letter_queue
from headrace.model.vhost import super_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.gateway.security.limits import Quotas
    from headrace.gateway.security.permissions import Rights
    from headrace.gateway.security.user import User
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost

    #: Values of any type that a table of AMQP has; the model checks them.
    Arguments = Mapping[str, object]
    Destination = tuple[str, str]  # EXCHANGE or QUEUE, and the name.

RESERVED_PREFIX = "amq."
ALTERNATE = "alternate-exchange"
DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
DEAD_LETTER_KEY = "x-dead-letter-routing-key"


class Dialect(Enum):
    """The protocol family whose rules apply to declarations."""

    EARLY = 1  # 0-8 and 0-9.
    V0_9_1 = 2
    V0_10 = 3


class Broker(Protocol):
    """A gateway's context, shared by all virtual hosts."""

    @property
    def access(self) -> Rights:
        """The permissions of users."""

    @property
    def quotas(self) -> Quotas:
        """The limits of users and virtual hosts."""

    @property
    def vhosts(self) -> Mapping[str, VirtualHost]:
        """All virtual hosts by name."""


class AuthorizedHost:
    """A virtual host as one user may change it."""

    __slots__ = ("access", "blamed_field", "broker", "dialect", "owner", "rebinds", "sticky",
                 "strict", "user", "vhost")  # fmt: skip

    def __init__(
        self,
        broker: Broker,
        vhost: VirtualHost,
        user: User,
        owner: object,
        dialect: Dialect,
        *,
        strict: bool = False,
        sticky: bool = False,
        rebinds: bool = False,
    ) -> None:
        """``owner`` owns exclusive queues: a connection, or a session of 0-10.

        With ``strict``, unknown arguments are refused, unless the virtual host has a rule for them.
        With ``sticky``, a second declaration of a queue is not compared with the first, and one of
        an exchange only by its type; another type is NotAllowed. With ``rebinds``, a
        binding to a topic exchange replaces the one of the same queue and key.
        """
        self.broker = broker
        self.access = broker.access
        self.vhost = vhost
        self.user = user
        self.owner = owner
        self.dialect = dialect
        self.strict = strict
        self.sticky = sticky
        self.rebinds = rebinds
        self.blamed_field = ""  # The field of a 0-10 command that the next error is about.

    # --- Permissions ----------------------------------------------------------------------------

    def check(self, permission: str, resource_type: str, name: str) -> None:
        """Refuse a name on which the user lacks a permission."""
        self.blamed_field = resource_type
        self.access.check(self.user, self.vhost.name, permission, resource_type, name)

    def check_any(self, resource_type: str, name: str) -> None:
        """Refuse queries about a name on which the user has no permission at all."""
        self.blamed_field = resource_type
        existing = self.vhost.queues.get(name) if resource_type == QUEUE else None
        name = name if existing is None else existing.access_name
        self.access.check_any(self.user, self.vhost.name, resource_type, name)

    def _check_forward_exchange(
        self, resource_type: str, name: str, exchange: object, field: str, key: object = None, *,
        dead_letters: bool = False,
    ) -> None:  # fmt: skip
        """Check the permissions for an alternate or dead-letter exchange."""
        if isinstance(exchange, str):
            self.check("read", resource_type, name)
            self.blamed_field = field
            self.access.check_forwarding(
                self.user, self.vhost, exchange, key, dead_letters=dead_letters
            )

    # Keeps 0-10/s142, 0-10/s146, 0-10/s159, 0-10/s166, 0-10/s169, 0-10/s173, 0-10/s191, 0-10/s199.
    def _require_name(self, resource_type: str, name: str) -> None:
        self.blamed_field = resource_type
        if not name and self.dialect is Dialect.V0_10:
            article = "an" if resource_type == EXCHANGE else "a"
            raise InvalidArgument(f"the name of {article} {resource_type} must not be empty")

    # Keeps 0-9/queue.declare.queue#reserved-prefix, 0-10/s145, 0-10/s178.
    def _refuse_reserved(self, resource_type: str, name: str) -> None:
        self.blamed_field = resource_type
        if name.startswith(RESERVED_PREFIX):
            raise NotAllowed(f"{resource_type} name '{name}' contains reserved prefix 'amq.*'")

    # --- Queues ---------------------------------------------------------------------------------

    def find_queue(self, name: str) -> Queue:
        """Return a queue that the owner may use."""
        self._require_name(QUEUE, name)
        return self.vhost.find_queue(name, self.owner)

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments,
        alternate: str = "",
        kept: bool = False,
        session: object = None,
    ) -> Queue:
        """Declare a queue and return it; see ``VirtualHost.declare_queue``.

        `headrace.model.policy.unknown_arguments` refuses or ignores unknown arguments.
        """
        vhost, is_0_10 = self.vhost, self.dialect is Dialect.V0_10
        self._require_name(QUEUE, name)
        self.check("configure", QUEUE, name or "amq.gen-")
        existing = vhost.queues.get(name) if name else None
        self.blamed_field = "arguments"
        if existing is None or is_0_10:
            arguments = vhost.translate_arguments(arguments, name, strict=self.strict)
            arguments = self._with_alternate(arguments, alternate)
        if existing is None:
            self._check_new_queue(name, arguments, alternate)
            self.blamed_field = "arguments" if arguments else QUEUE
        elif is_0_10:
            return self._redeclare_queue(name, arguments, alternate, exclusive)
        return vhost.declare_queue(
            name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
            owner=self.owner,
            kept=kept,
            sticky=self.sticky,
            user=self.user.name,
            session=session,
        )

    # Keeps 0-9/queue.declare.queue#reserved-prefix, 0-10/s178, 0-10/s181.
    def _check_new_queue(self, name: str, arguments: Arguments, alternate: str) -> None:
        if self.dialect is not Dialect.V0_9_1:
            self._refuse_reserved(QUEUE, name)
        if alternate:
            self.blamed_field = "alternate_exchange"
            self.vhost.find_exchange(alternate)
        field = "alternate_exchange" if alternate else "arguments"
        self._check_forward_exchange(QUEUE, name, arguments.get(ALTERNATE), field)
        exchange, key = arguments.get(DEAD_LETTER_EXCHANGE), arguments.get(DEAD_LETTER_KEY)
        self._check_forward_exchange(QUEUE, name, exchange, "arguments", key, dead_letters=True)
        if arguments.get(DEAD_LETTERS) == 1:
            self.blamed_field = "arguments"
            letters_queue = dead_letter_queue(name)
            self.access.check(self.user, self.vhost.name, "configure", QUEUE, letters_queue)
        self.blamed_field = QUEUE
        self.broker.quotas.check_queue(self.broker.vhosts.values(), self.user.name, name)

    # Keeps 0-10/s181, 0-10/s185, 0-10/s189.
    def _redeclare_queue(
        self, name: str, arguments: Arguments, alternate: str, exclusive: bool
    ) -> Queue:
        """Compare a queue with a second declaration.

        Its ``durable`` and ``auto_delete`` are ignored (0-10/s185, s189).
        """
        queue = self.find_queue(name)
        self.blamed_field = "alternate_exchange"
        if alternate and queue.alternate_exchange != alternate:
            raise NotAllowed(f"queue '{name}' has another alternate-exchange")
        self.blamed_field = "arguments"
        compared = [argument for argument in QUEUE_ARGUMENTS if argument in arguments]
        subject = f"queue '{name}' in vhost '{self.vhost.name}'"
        assert_same_arguments(queue.arguments, arguments, compared, subject)
        if exclusive:
            self.blamed_field = "exclusive"
            self.vhost.lock_queue(queue, self.owner)
        queue.used_ms = self.vhost.counters.now_ms
        return queue

    # Keeps 0-9-1/s082, 0-9/queue.delete.queue#02, 0-10/s192.
    def delete_queue(self, name: str, *, if_unused: bool, if_empty: bool) -> int:
        """Delete a queue; return its number of ready messages, in 0-9-1 0 for a missing queue."""
        self._require_name(QUEUE, name)
        self.check("configure", QUEUE, name)
        if self.dialect is not Dialect.V0_9_1:
            queue = self.vhost.find_queue(name, self.owner)
            is_used = if_unused and queue.consumer_count()
            self.blamed_field = "if_unused" if is_used else "if_empty" if if_empty else QUEUE
        return self.vhost.delete_queue(name, if_unused, if_empty, self.owner)

    # Keeps 0-9-1/s079, 0-9/queue.purge.queue#02, 0-10/s200, 0-10/s201.
    def purge_queue(self, name: str) -> int:
        """Drop the ready messages of a queue; return their number."""
        self._require_name(QUEUE, name)
        self.check("read", QUEUE, name)
        queue = self.vhost.find_queue(name, self.owner)
        if queue.is_stream:
            subject = f"stream '{queue.name}' in vhost '{self.vhost.name}'"
            raise NotImplementedHere(f"purge of {subject} is not served")
        return self.vhost.purge_queue(queue)

    # --- Exchanges ------------------------------------------------------------------------------

    def find_exchange(self, name: str) -> Exchange:
        """Return the exchange of that name."""
        self._require_name(EXCHANGE, name)
        return self.vhost.find_exchange(name)

    def declare_exchange(
        self,
        name: str,
        exchange_type: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments,
        alternate: str = "",
    ) -> None:
        """Declare an exchange, after checks of its name, permissions and arguments."""
        vhost = self.vhost
        self._require_name(EXCHANGE, name)
        self.check("configure", EXCHANGE, name)
        if self.dialect is Dialect.V0_10:
            arguments = self._with_alternate(arguments, alternate)
            self._check_exchange_0_10(name, exchange_type, arguments, alternate)
            if name in vhost.exchanges:
                return  # Durable and auto-delete are ignored (0-10/s155, 0-10/s156).
            arguments = known_arguments(exchange_type, arguments)
        if name not in vhost.exchanges:
            if alternate:
                self.blamed_field = "alternate_exchange"
                vhost.find_exchange(alternate)
            for forward_exchange in [arguments.get(argument) for argument in ALTERNATES]:
                field = "alternate_exchange" if alternate else EXCHANGE
                self._check_forward_exchange(EXCHANGE, name, forward_exchange, field)
        for stream in super_stream.partition_names(name, exchange_type, arguments):
            self.check("configure", QUEUE, stream)
            self.check("write", QUEUE, stream)
        self.blamed_field = EXCHANGE
        vhost.declare_exchange(
            name,
            exchange_type,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
            sticky=self.sticky,
        )

    # Keeps 0-10/s145, 0-10/s147, 0-10/s148, 0-10/s150.
    def _check_exchange_0_10(
        self, name: str, exchange_type: str, arguments: Arguments, alternate: str
    ) -> None:
        """Check a declaration of a new or existing exchange by the rules of 0-10.

        `headrace.model.policy.unknown_arguments` refuses or ignores unknown arguments.
        """
        self.blamed_field = "type"
        if exchange_type not in TYPES:
            raise NotFound(f"there is no exchange type '{exchange_type}'")
        exchange = self.vhost.exchanges.get(name)
        if exchange is None:
            self._refuse_reserved(EXCHANGE, name)
        else:
            if exchange.type != exchange_type:
                raise NotAllowed(f"exchange '{name}' has the type '{exchange.type}'")
            self.blamed_field = "alternate_exchange" if alternate else "arguments"
            requested = next((arguments[a] for a in ALTERNATES if a in arguments), None)
            if requested and exchange.alternate != requested:
                raise NotAllowed(f"exchange '{name}' has another alternate-exchange")
        self.blamed_field = "arguments"
        self.vhost.check_exchange_arguments(name, exchange_type, arguments, strict=self.strict)

    def _with_alternate(self, arguments: Arguments, alternate: str) -> Arguments:
        """Return arguments with the alternate exchange, which is a separate field in 0-10."""
        if not alternate:
            return arguments
        self.blamed_field = "arguments"
        if arguments.get(ALTERNATE, alternate) != alternate:
            text = f"invalid arg '{ALTERNATE}': it contradicts the field, '{alternate}'"
            raise InvalidArgument(text)
        return {**arguments, ALTERNATE: alternate}

    # Keeps 0-9-1/s046, 0-9/exchange.delete.exchange#exists, 0-10/s158, 0-10/s160.
    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        """Delete an exchange; in 0-9-1 a missing exchange is not an error."""
        vhost = self.vhost
        self._require_name(EXCHANGE, name)
        self.check("configure", EXCHANGE, name)
        if self.dialect is not Dialect.V0_9_1:
            exchange = vhost.find_exchange(name)
            if self.dialect is Dialect.V0_10:
                if vhost.serves_as_alternate(name):
                    text = f"exchange '{name}' is the alternate-exchange of others"
                    raise NotAllowed(text)
                if name.startswith(RESERVED_PREFIX):
                    text = f"exchange '{name}' in vhost '{vhost.name}'"
                    raise NotAllowed(f"deletion of system {text} not allowed")
            self.blamed_field = "if_unused" if if_unused and exchange.bindings else EXCHANGE
        vhost.delete_exchange(name, if_unused)

    # --- Bindings -------------------------------------------------------------------------------

    # Keeps 0-10/s162, 0-10/s163.
    def bind(self, source: str, destination: Destination, key: str, arguments: Arguments) -> None:
        """Bind a queue or an exchange to an exchange."""
        self._check_binding_ends(source, destination, key)
        if destination[0] == EXCHANGE:
            self.access.check_every_topic(self.user, self.vhost, destination[1], KEYS_KEPT)
        if self.dialect is Dialect.EARLY:
            self._check_early_binding(source, destination[1])
        if self.dialect is Dialect.V0_10 and self._bindings_under_key(source, destination[1], key):
            return
        self.blamed_field = "arguments"
        self.vhost.bind(source, destination, key, arguments, owner=self.owner, strict=self.strict)
        if self.rebinds and self.vhost.exchanges[source].type == TopicExchange.type:
            for binding in self._bindings_under_key(source, destination[1], key):
                if binding != Binding(binding.source, binding.destination, key, arguments):
                    self.vhost.unbind(source, destination, key, binding.arguments, self.owner)

    # Keeps 0-9-1/s072, 0-9-1/s073, 0-9/queue.unbind.queue#02, 0-9/queue.unbind.exchange#03,
    # 0-10/s174.
    def unbind(self, source: str, destination: Destination, key: str, arguments: Arguments) -> bool:
        """Remove a binding, in 0-10 all bindings under a key; return True if one existed.

        A False is no error in 0-9-1; in 0-8 and 0-9, `early_rules.check_unbound` refuses it in the
        method.

        Raises:
            NotFound: the queue or exchange is missing, except in 0-9-1 (as in RabbitMQ), or no
                binding exists, in 0-10.
        """
        self._check_binding_ends(source, destination, key)
        if self.dialect is not Dialect.V0_10:
            try:
                return self.vhost.unbind(source, destination, key, arguments, self.owner)
            except NotFound:
                if self.dialect is Dialect.EARLY:
                    raise
                return False
        bindings = self._bindings_under_key(source, destination[1], key)
        self.blamed_field = "binding_key"
        if not bindings:
            subject = f"queue '{destination[1]}' is not bound to exchange '{source}'"
            raise NotFound(f"{subject} with key '{key}'")
        for binding in bindings:
            self.vhost.unbind(source, destination, key, binding.arguments, self.owner)
        return True

    def bound(
        self, exchange: Exchange, queue: Queue | None, key: str
    ) -> list[tuple[str, Arguments]]:
        """Return keys and arguments of an exchange's bindings, to all queues or to ``queue``.

        The default exchange has one binding for each queue. For this exchange, a ``key`` limits the
        result to the queue of that name.
        """
        if exchange.name:
            bindings = exchange.bindings if queue is None else self.vhost.bindings_to(queue)
            return [(b.routing_key, b.arguments or {}) for b in bindings if b.source is exchange]
        names = [queue.name] if queue is not None else [key] if key else list(self.vhost.queues)
        return [(name, {}) for name in names if name in self.vhost.queues]

    # Keeps 0-10/s167, 0-10/s168, 0-10/s171, 0-10/s172.
    def _check_binding_ends(self, source: str, destination: Destination, key: str) -> None:
        """Check the permissions for a binding: write to the destination, read from the source."""
        resource_type, name = destination
        self._require_name(resource_type, name)
        self._require_name(EXCHANGE, source)
        self.check("write", resource_type, name)
        self.check("read", EXCHANGE, source)
        self.blamed_field = "binding_key"
        self.access.check_topic(self.user, self.vhost, "read", source, key)
        if self.dialect is Dialect.V0_10:
            self.find_queue(name)
            self.find_exchange(source)

    def _bindings_under_key(self, source: str, queue: str, key: str) -> list[Binding]:
        """Return the bindings of a queue to an exchange under one key."""
        exchange, bindings = (
            self.vhost.exchanges[source],
            self.vhost.bindings_to(self.vhost.queues[queue]),
        )
        return [b for b in bindings if b.source is exchange and b.routing_key == key]

    # Keeps 0-9/queue.bind#transient-exchange, 0-9/queue.bind#internal-exchange.
    def _check_early_binding(self, exchange: str, queue: str) -> None:
        """Refuse bindings that later versions allow.

        These are 0-9/queue.bind#transient-exchange and #internal-exchange.
        """
        source, destination = self.vhost.exchanges.get(exchange), self.vhost.queues.get(queue)
        if source is None or destination is None:
            return
        subject = f"exchange '{exchange}' in vhost '{self.vhost.name}'"
        if source.internal:
            raise NotAllowed(f"{subject} is internal")
        if destination.durable and not source.durable:
            raise NotAllowed(f"durable queue '{queue}' may not be bound to transient {subject}")
