# SPDX-License-Identifier: Apache-2.0
"""The base class of all exchange types, which match bindings by routing key and headers.

Each type has its own index of bindings, in a module of this folder. Matching does not run for each
message: a gateway caches routes, except those that depend on headers or on a binding's selector.

Bindings with a selector or no-local are in further exchanges of the same type, one for each
distinct filter. Their destinations match if the filter accepts the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict

from headrace.model.arguments.aliases import ALTERNATES
from headrace.model.arguments.consumer import NO_LOCAL, SELECTORS, read_boolean, read_selector
from headrace.model.arguments.exchange import string, switch
from headrace.model.arguments.memory_estimate import (
    BINDING,
    DIGEST,
    EXCHANGE,
    selector_memory,
    table_memory,
    text_memory,
)
from headrace.model.arguments.no_local import is_local
from headrace.model.arguments.values import Check, wrong_argument
from headrace.model.errors import InvalidArgument
from headrace.model.exchange import deduplication
from headrace.model.tallies import ExchangeTally

if TYPE_CHECKING:
    from headrace.model.exchange.binding import Binding, BindingDestination
    from headrace.model.exchange.deduplication import IdCache
    from headrace.model.queue.queue import Queue
    from headrace.model.selector import Selector
    from headrace.model.selector.values import Values

# Returns the headers of a message. It may have a method ``properties``, which returns message_id,
# correlation_id and timestamp as far as the message has them, and a method ``values``, which
# returns the headers and properties as selectors read them.
Headers = Callable[[], Mapping[str, object]]

SEQUENCE = "qpid.msg_sequence"  # The exchange numbers its messages.
IVE = "qpid.ive"  # The exchange passes its last message to new bindings.
EXCLUSIVE_BINDING = "qpid.exclusive-binding"  # Of a binding: the others of its key end.

# Arguments of all exchange types.
COMMON_ARGUMENTS: Mapping[str, Check] = {
    **dict.fromkeys(ALTERNATES, string),
    SEQUENCE: switch,
    IVE: switch,
    **deduplication.ARGUMENTS,
}

FILTER_ARGUMENTS = (*SELECTORS, NO_LOCAL)
# Arguments of bindings; types without ``supports_selectors`` refuse the filters.
BINDING_ARGUMENTS = (EXCLUSIVE_BINDING, *FILTER_ARGUMENTS)


class BindingFilter(NamedTuple):
    """The selector and no-local of a binding, which apply in addition to its key or headers."""

    selector: Selector | None
    no_local: bool  # Skip messages published by the owner of the destination queue.

    @property
    def key(self) -> tuple[str, bool]:
        """The selector's text and no-local: equal for bindings with the same filter."""
        return "" if self.selector is None else self.selector.text, self.no_local


class ExchangeProperties(TypedDict, total=False):
    """Keyword arguments of :class:`Exchange`."""

    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, object] | None


class Observer(Protocol):
    """The observer of an exchange: it finds duplicates, stamps messages, and keeps some."""

    kept: Queue | None  # The queue of kept messages.
    ids: IdCache | None  # The ids of accepted messages; None if duplicates are not dropped.

    def is_duplicate(self, headers: Mapping[str, object]) -> bool:
        """Return True if a message with this id was accepted before."""

    def must_keep(self, headers: Mapping[str, object]) -> bool:
        """Return True if the exchange keeps a message for later bindings."""

    def stamps(self) -> dict[str, object]:
        """Return the headers to add to the next message."""

    def check(self, persistent: bool) -> None:
        """Raise ResourceError if the id of a message cannot be stored."""

    def record_id(self, headers: Mapping[str, object], persistent: bool) -> None:
        """Record the id of an accepted message."""

    def replay_to(self, binding: Binding) -> None:
        """Pass the kept messages to a new binding."""

    def clear(self) -> None:
        """Remove the stored state of a deleted exchange."""


class Exchange:
    """The base class of all exchange types."""

    type = ""
    arguments_known = COMMON_ARGUMENTS  # A redeclaration must have equal values.
    ignored_arguments: tuple[str, ...] = ()  # Accepted arguments without effect.
    cacheable = True  # True if exchange and routing key alone decide a route.
    reads_arguments = False  # True if binding arguments matter.
    supports_selectors = False  # True if bindings may have selectors.
    unindexes_later = False  # True if the index may be cleared after bindings are removed.
    own_memory = EXCHANGE  # Bytes of memory without name, arguments and bindings.
    index_memory_max = 1 << 62  # The bound of the index's memory, for all bindings together.
    fixed = False  # True if clients may not delete the exchange.

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
        alternates = [
            self.arguments[argument] for argument in ALTERNATES if argument in self.arguments
        ]
        alternate = alternates[0] if alternates else None
        self.own_alternate = alternate if isinstance(alternate, str) else None
        # The alternate in effect, from the arguments or a policy; `VirtualHost.follow` uses it.
        self.alternate = self.own_alternate
        self.bindings: dict[Binding, None] = {}  # Bindings of this source, in order of binding.
        self.filtered: dict[tuple[str, bool], tuple[BindingFilter, Exchange]] | None = None
        self.deleted = False
        self.tally = ExchangeTally()
        # Called for each message; see headrace.model.interceptor.exchange_observer.
        self.observer: Observer | None = None

    @property
    def deduplicates(self) -> bool:
        """True if the exchange drops duplicate messages."""
        return bool(self.arguments.get(deduplication.ARGUMENT))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} bindings={len(self.bindings)}>"

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, object], subject: str) -> None:
        """Refuse known arguments with invalid values.

        ``subject`` names the exchange in the error.
        """
        for name, check in cls.arguments_known.items():
            if name in arguments:
                error = check(arguments[name], arguments)
                if error is not None:
                    raise wrong_argument(name, arguments[name], subject, error)

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        """Refuse a binding with an invalid key or arguments."""

    def check_room(self, routing_key: str) -> None:
        """Refuse a new binding beyond the limit of this type."""

    def check_destination(self, destination: BindingDestination) -> None:
        """Refuse a destination that this type cannot have."""

    def bind(self, binding: Binding) -> bool:
        """Add a binding; return False if it exists.

        Raises:
            InvalidArgument: the binding's filter is malformed, or the type has no filters.
        """
        if binding in self.bindings:
            return False
        binding_filter = self._read_filter(binding)
        self.bindings[binding] = None
        if binding_filter is None:
            self._add_to_index(binding)
            return True
        if self.filtered is None:
            self.filtered = {}
        if binding_filter.key not in self.filtered:
            subset = type(self)(self.name, arguments=self.arguments)
            self.filtered[binding_filter.key] = (binding_filter, subset)
        subset = self.filtered[binding_filter.key][1]
        subset.bindings[binding] = None
        subset._add_to_index(binding)
        return True

    def memory(self) -> int:
        """Return the memory of the exchange without its bindings, in bytes.

        See :mod:`headrace.model.arguments.memory_estimate`.
        """
        return self.own_memory + text_memory(self.name) + table_memory(self.arguments)

    def binding_memory(self, binding: Binding) -> int:
        """Return the memory of a binding in bytes, before it is added or after it is removed."""
        memory = BINDING + text_memory(binding.routing_key)
        if binding.arguments is None:
            return memory + self.index_memory(binding)
        memory += DIGEST + table_memory(binding.arguments)
        binding_filter = self._read_filter(binding)
        if binding_filter is None:
            return memory + self.index_memory(binding)
        subset_entry = (self.filtered or {}).get(binding_filter.key)
        if subset_entry is not None:
            return memory + subset_entry[1].index_memory(binding)
        subset = type(self)(self.name, arguments=self.arguments)
        if binding_filter.selector is not None:
            memory += selector_memory(binding_filter.selector.text)
        return memory + self.own_memory + subset.index_memory(binding)

    def index_memory(self, binding: Binding) -> int:
        """Return the memory in bytes that a binding adds to this type's index."""
        return 0

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; return False if there was none."""
        if binding not in self.bindings:
            return False
        del self.bindings[binding]
        self.remove_from_index(binding)
        return True

    def remove_from_index(self, binding: Binding) -> None:
        """Remove a binding from the index, after its removal from ``bindings``."""
        binding_filter = self._read_filter(binding)
        if binding_filter is None or self.filtered is None:
            self._remove_from_index(binding)
            return
        subset = self.filtered[binding_filter.key][1]
        del subset.bindings[binding]
        subset._remove_from_index(binding)
        if not subset.bindings:
            del self.filtered[binding_filter.key]
            self.filtered = self.filtered or None

    def match_filtered(
        self,
        routing_key: str,
        headers: Headers,
        matched: dict[BindingDestination, None],
        publisher: int = 0,
    ) -> bool:
        """Add the destinations of bindings with filters; return True if a filter was evaluated.

        ``publisher`` is the number of the publishing connection.
        """
        evaluated = False
        values: Values | Mapping[str, object] | None = None
        for binding_filter, subset in (self.filtered or {}).values():
            candidates: dict[BindingDestination, None] = {}
            subset.match(routing_key, headers, candidates)
            if not candidates:
                continue
            evaluated = True
            if binding_filter.no_local:
                candidates = {
                    destination: None
                    for destination in candidates
                    if not is_local(destination, publisher)
                }
            if binding_filter.selector is not None:
                if values is None:
                    values = getattr(headers, "values", headers)()
                    assert values is not None
                if not binding_filter.selector.matches(values):
                    continue
            matched.update(candidates)
        return evaluated

    def _read_filter(self, binding: Binding) -> BindingFilter | None:
        if not binding.arguments or not any(name in binding.arguments for name in FILTER_ARGUMENTS):
            return None
        subject = f"binding of exchange '{self.name}'"
        if not self.supports_selectors:
            raise InvalidArgument(
                f"invalid arg for {subject}: those of type '{self.type}' have no selectors"
            )
        selector = read_selector(binding.arguments, subject)
        no_local = read_boolean(binding.arguments, NO_LOCAL, subject)
        return BindingFilter(selector, no_local) if no_local or selector is not None else None

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        """Add the destinations of the matching bindings."""
        raise NotImplementedError

    def _add_to_index(self, binding: Binding) -> None:
        raise NotImplementedError

    def _remove_from_index(self, binding: Binding) -> None:
        raise NotImplementedError
