# SPDX-License-Identifier: Apache-2.0
"""Exchanges: which bindings match a routing key and headers. Each type keeps its own index.

Nothing here is looked up once per message: a gateway remembers routes, except those in which a
headers exchange took part, or the selector of a binding.

Bindings that choose, by a selector or by who publishes, are kept by an exchange of the same type
beside this one, one for each choice; what matches there is a destination if the choice is true of
the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

from headrace.model.arguments.aliases import ALTERNATES
from headrace.model.arguments.canonical import canonical
from headrace.model.arguments.consumer import NO_LOCAL, SELECTORS, selector_of, switched
from headrace.model.arguments.exchange import anything, string, switch
from headrace.model.arguments.memory_estimate import (
    BINDING,
    DIGEST,
    EXCHANGE,
    NODE,
    selector_octets,
    table_octets,
    text_octets,
)
from headrace.model.arguments.murmur3 import murmur3_32
from headrace.model.arguments.no_local import is_local
from headrace.model.arguments.values import Check, shown, type_name, wrong_argument
from headrace.model.errors import InvalidArgument, PreconditionFailed
from headrace.model.exchange import deduplication
from headrace.model.exchange.binding import Binding, Bound, Destination, destinations, drop, hold
from headrace.model.exchange.headers_index import Asked, HeadersIndex
from headrace.model.exchange.topic_trie import TopicTrie

if TYPE_CHECKING:
    from headrace.model.interceptor.exchange_observer import ExchangeObserver
    from headrace.model.queue.queue import Queue
    from headrace.model.selector import Selector
    from headrace.model.selector.values import Values

# Gives the headers of a message; it may have a method ``properties``, which gives message_id,
# correlation_id and timestamp as far as the message has them, and one ``values``, which gives what
# selectors see.
Headers = Callable[[], Mapping[str, object]]

X_MATCH = "x-match"
SEQUENCE = "qpid.msg_sequence"  # The exchange numbers its messages.
IVE = "qpid.ive"  # The exchange keeps its last message for new bindings.
EXCLUSIVE = "qpid.exclusive-binding"  # An argument of a binding: no other has its key.
SUPER_STREAM = "x-super-stream"  # The argument of a direct exchange.
PARTITION_BY = "x-partition-by"  # hash or key.
PARTITION_ORDER = "x-stream-partition-order"  # The argument of a binding.
_UNORDERED = 1 << 64

# Arguments that exchanges of all types understand.
COMMON_ARGUMENTS: Mapping[str, Check] = {
    **dict.fromkeys(ALTERNATES, string),
    SEQUENCE: switch,
    IVE: switch,
    **deduplication.ARGUMENTS,
}

CHOICES = (*SELECTORS, NO_LOCAL)
BINDING_ARGUMENTS = (EXCLUSIVE, *CHOICES)  # Choices are refused elsewhere where there are none.


class BindingFilter(NamedTuple):
    """Which messages a binding is for, beside those that match it."""

    selector: Selector | None
    no_local: bool  # Not those of a connection whose own queue it leads to.

    @property
    def key(self) -> tuple[str, bool]:
        """What is equal for bindings that choose alike."""
        return "" if self.selector is None else self.selector.text, self.no_local


class ExchangeProperties(TypedDict, total=False):
    """The keyword arguments of an exchange."""

    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, object] | None


class Exchange:
    """What all types have in common."""

    type = ""
    arguments_known = COMMON_ARGUMENTS  # A second declaration must repeat them.
    hints: tuple[str, ...] = ()  # Arguments that are understood, and change nothing.
    cacheable = True  # A route depends on exchange and routing key alone.
    reads_arguments = False  # Those of bindings.
    selects = False  # Bindings may have selectors.
    lingers = False  # What it finds a message by may be ahead of the bindings that are gone.
    own_octets = EXCHANGE  # Of memory, without name, arguments and bindings.
    index_octets_max = 1 << 62  # For all bindings together.
    fixed = False  # Clients do not delete it.

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments: dict[str, object] = dict(arguments or {})
        said = [self.arguments[argument] for argument in ALTERNATES if argument in self.arguments]
        alternate = said[0] if said else None
        self.own_alternate = alternate if isinstance(alternate, str) else None
        self.alternate = self.own_alternate  # Or that of a policy.
        self.bindings: dict[Binding, None] = {}  # From here, in order of their making.
        self.chosen: dict[tuple[str, bool], tuple[BindingFilter, Exchange]] | None = None
        self.deleted = False
        self.realm = ""  # The access realm of the ticket that it was made with.
        # Called for each message; see headrace.model.interceptor.exchange_observer.
        self.observer: ExchangeObserver | None = None

    @property
    def deduplicates(self) -> bool:
        """Whether messages that come twice are dropped."""
        return bool(self.arguments.get(deduplication.ARGUMENT))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} bindings={len(self.bindings)}>"

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, object], what: str) -> None:
        """Refuse arguments that this type understands, with wrong values.

        ``what`` names the exchange in the text.
        """
        for name, check in cls.arguments_known.items():
            if name in arguments:
                wrong = check(arguments[name], arguments)
                if wrong is not None:
                    raise wrong_argument(name, arguments[name], what, wrong)

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        """Refuse a binding that this type cannot understand."""

    def check_destination(self, destination: Destination) -> None:
        """Refuse what this type cannot be bound to."""

    def bind(self, binding: Binding) -> bool:
        """Add a binding; False when it was there.

        Raises:
            InvalidArgument: it has a bad choice, or one where there are none.
        """
        if binding in self.bindings:
            return False
        choice = self._choice(binding)
        self.bindings[binding] = None
        if choice is None:
            self._index(binding)
            return True
        if self.chosen is None:
            self.chosen = {}
        if choice.key not in self.chosen:
            beside = type(self)(self.name, arguments=self.arguments)
            self.chosen[choice.key] = (choice, beside)
        beside = self.chosen[choice.key][1]
        beside.bindings[binding] = None
        beside._index(binding)
        return True

    def octets(self) -> int:
        """What it takes of memory, without bindings

        (:mod:`headrace.model.arguments.memory_estimate`).
        """
        return self.own_octets + text_octets(self.name) + table_octets(self.arguments)

    def weigh(self, binding: Binding) -> int:
        """What a binding will take that is not here yet, or took that is not here any more."""
        octets = BINDING + text_octets(binding.routing_key)
        if binding.arguments is None:
            return octets + self.index_octets(binding)
        octets += DIGEST + table_octets(binding.arguments)
        choice = self._choice(binding)
        if choice is None:
            return octets + self.index_octets(binding)
        chosen = (self.chosen or {}).get(choice.key)
        if chosen is not None:
            return octets + chosen[1].index_octets(binding)
        beside = type(self)(self.name, arguments=self.arguments)
        if choice.selector is not None:
            octets += selector_octets(choice.selector.text)
        return octets + self.own_octets + beside.index_octets(binding)

    def index_octets(self, binding: Binding) -> int:
        """What a binding takes where it is looked up, beside what all of them take."""
        return 0

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; False when there was none."""
        if binding not in self.bindings:
            return False
        del self.bindings[binding]
        self.forget(binding)
        return True

    def forget(self, binding: Binding) -> None:
        """Find no message by a binding any more that was taken from ``bindings``."""
        choice = self._choice(binding)
        if choice is None or self.chosen is None:
            self._forget(binding)
            return
        beside = self.chosen[choice.key][1]
        del beside.bindings[binding]
        beside._forget(binding)
        if not beside.bindings:
            del self.chosen[choice.key]
            self.chosen = self.chosen or None

    def match_chosen(
        self,
        routing_key: str,
        headers: Headers,
        into: dict[Destination, None],
        publisher: int = 0,
    ) -> bool:
        """Add the destinations of the bindings that choose; tell whether one took part.

        ``publisher`` is the number of the connection that publishes.
        """
        took_part = False
        values: Values | Mapping[str, object] | None = None
        for choice, beside in (self.chosen or {}).values():
            matched: dict[Destination, None] = {}
            beside.match(routing_key, headers, matched)
            if not matched:
                continue
            took_part = True
            if choice.no_local:
                matched = {each: None for each in matched if not is_local(each, publisher)}
            if choice.selector is not None:
                if values is None:
                    values = getattr(headers, "values", headers)()
                    assert values is not None
                if not choice.selector.matches(values):
                    continue
            into.update(matched)
        return took_part

    def _choice(self, binding: Binding) -> BindingFilter | None:
        if not binding.arguments or not any(name in binding.arguments for name in CHOICES):
            return None
        what = f"binding of exchange '{self.name}'"
        if not self.selects:
            raise InvalidArgument(
                f"invalid arg for {what}: those of type '{self.type}' have no selectors"
            )
        selector = selector_of(binding.arguments, what)
        no_local = switched(binding.arguments, NO_LOCAL, what)
        return BindingFilter(selector, no_local) if no_local or selector is not None else None

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        """Add the destinations of the bindings that match."""
        raise NotImplementedError

    def _index(self, binding: Binding) -> None:
        raise NotImplementedError

    def _forget(self, binding: Binding) -> None:
        raise NotImplementedError


class DirectExchange(Exchange):
    """The routing key equals that of the binding."""

    type = "direct"
    hints = (SUPER_STREAM,)
    selects = True
    lingers = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._keys: dict[str, Bound] = {}

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        destinations(self._keys.get(routing_key), into)

    def _index(self, binding: Binding) -> None:
        hold(self._keys, binding.routing_key, binding)

    def _forget(self, binding: Binding) -> None:
        drop(self._keys, binding.routing_key, binding)


class FanoutExchange(Exchange):
    """Every binding matches."""

    type = "fanout"
    selects = True
    lingers = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._all: dict[Binding, None] = {}

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        for binding in self._all:
            into[binding.destination] = None

    def _index(self, binding: Binding) -> None:
        self._all[binding] = None

    def _forget(self, binding: Binding) -> None:
        del self._all[binding]


class TopicExchange(Exchange):
    """The binding's routing key is a pattern."""

    type = "topic"
    selects = True
    lingers = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._trie = TopicTrie()

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        self._trie.match(routing_key, into)

    def index_octets(self, binding: Binding) -> int:
        return NODE * self._trie.missing(binding.routing_key)

    def _index(self, binding: Binding) -> None:
        self._trie.add(binding.routing_key, binding)

    def _forget(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, binding)


class HeadersExchange(Exchange):
    """The binding's arguments are compared with the headers of the message."""

    type = "headers"
    cacheable = False
    reads_arguments = True
    selects = True
    lingers = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self.conditions = HeadersIndex()
        self._unconditional: dict[Binding, None] = {}

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        match = str(arguments.get(X_MATCH, "all"))
        if not isinstance(match, str):
            raise InvalidArgument(
                f"Invalid x-match field type {type_name(match)} (value {shown(match)}); "
                "expected longstr"
            )
        if match not in ("all", "any", "all-with-x", "any-with-x"):
            text = f'<<"{match}">>' if match else "<<>>"
            raise InvalidArgument(
                f"Invalid x-match field value {text}; expected all, any, all-with-x, or any-with-x"
            )

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        for binding in self._unconditional:
            into[binding.destination] = None
        if self.conditions.names:
            self.conditions.match(headers(), into)

    def index_octets(self, binding: Binding) -> int:
        return self.conditions.octets(*conditions(binding), binding.arguments or {})

    def _index(self, binding: Binding) -> None:
        every, asked = conditions(binding)
        if asked:
            self.conditions.add(binding, every, asked)
        elif every:
            self._unconditional[binding] = None

    def _forget(self, binding: Binding) -> None:
        every, asked = conditions(binding)
        if asked:
            self.conditions.remove(binding, every, asked)
        else:
            self._unconditional.pop(binding, None)


def conditions(binding: Binding) -> tuple[bool, list[Asked]]:
    """Return whether all must hold, and what is asked: (name, value or None for any value)."""
    arguments = binding.arguments or {}
    match = str(arguments.get(X_MATCH, "all"))
    with_x = match.endswith("-with-x")
    asked = [
        (name, canonical(value))
        for name, value in arguments.items()
        if name != X_MATCH and name not in SELECTORS and (with_x or not name.startswith("x-"))
    ]
    return match.startswith("all"), asked


class SuperStreamExchange(Exchange):
    """The routing key picks one of the streams that are bound: by its hash, or as their key.

    See :mod:`headrace.model.vhost.super_stream`.
    """

    type = "x-super-stream"
    arguments_known: Mapping[str, Check] = {
        **COMMON_ARGUMENTS,
        "x-partitions": anything,  # See model/vhost/super_stream.py.
        PARTITION_BY: anything,
        "x-max-length-bytes": anything,
        "x-max-age": anything,
        "x-stream-max-segment-size-bytes": anything,
    }

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self.by_key = self.arguments.get(PARTITION_BY) == "key"
        self._keys: dict[str, Bound] = {}
        self._order: list[Destination] = []

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        order = arguments.get(PARTITION_ORDER, 0)
        if not isinstance(order, int) or isinstance(order, bool) or not 0 <= order < _UNORDERED:
            raise InvalidArgument(f"invalid binding arg '{PARTITION_ORDER}': {order!r}")

    def check_destination(self, destination: Destination) -> None:
        if not getattr(destination, "is_stream", False):
            raise PreconditionFailed(
                f"'{destination.name}' is no stream, and so no partition of super stream "
                f"'{self.name}'"
            )

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        if self.by_key:
            destinations(self._keys.get(routing_key), into)
        elif self._order:
            into[self._order[murmur3_32(routing_key.encode()) % len(self._order)]] = None

    def _index(self, binding: Binding) -> None:
        hold(self._keys, binding.routing_key, binding)
        self._sort()

    def _forget(self, binding: Binding) -> None:
        drop(self._keys, binding.routing_key, binding)
        self._sort()

    def _sort(self) -> None:
        ordered = sorted(self.bindings, key=order_of)
        self._order = list(dict.fromkeys(binding.destination for binding in ordered))


def order_of(binding: Binding) -> tuple[int, str]:
    """Return what the partitions of super streams are sorted by."""
    order = (binding.arguments or {}).get(PARTITION_ORDER, _UNORDERED)
    return (order if isinstance(order, int) else _UNORDERED), binding.destination.name


class DefaultExchange(Exchange):
    """The exchange without a name: the routing key is the name of a queue."""

    type = "direct"

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        super().__init__("", durable=True)
        self._queues = queues

    def match(self, routing_key: str, headers: Headers, into: dict[Destination, None]) -> None:
        queue = self._queues.get(routing_key)
        if queue is not None and not queue.is_hidden:
            into[queue] = None

    def _index(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings of its own")

    def _forget(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings of its own")
