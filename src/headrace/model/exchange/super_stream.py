# SPDX-License-Identifier: Apache-2.0
"""The exchange of a super stream, which picks the partition of a message.

`headrace.model.vhost.super_stream` declares the partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headrace.model.arguments.exchange import anything
from headrace.model.errors import InvalidArgument, PreconditionFailed
from headrace.model.exchange.binding import add_binding, add_destinations, remove_binding
from headrace.model.exchange.exchange import COMMON_ARGUMENTS, Exchange, ExchangeProperties, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.arguments.values import Check
    from headrace.model.exchange.binding import Binding, BindingDestination, BindingEntry

SUPER_STREAM = "x-super-stream"  # An argument of a direct exchange.
PARTITION_BY = "x-partition-by"  # "hash" or "key".
PARTITION_ORDER = "x-stream-partition-order"  # An argument of a binding.
_UNORDERED = 1 << 64
_SEED = 104729  # The seed of the routing key's hash, the same in all super stream clients.
_MASK = 0xFFFFFFFF


class SuperStreamExchange(Exchange):
    """Routes to one of the bound streams, by hash of the routing key or by key.

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
        "x-local-max-length-bytes": anything,
        "x-local-max-age": anything,
    }

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self.by_key = self.arguments.get(PARTITION_BY) == "key"
        self._keys: dict[str, BindingEntry] = {}
        self._order: list[BindingDestination] = []

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        order = arguments.get(PARTITION_ORDER, 0)
        if not isinstance(order, int) or isinstance(order, bool) or not 0 <= order < _UNORDERED:
            raise InvalidArgument(f"invalid binding arg '{PARTITION_ORDER}': {order!r}")

    def check_destination(self, destination: BindingDestination) -> None:
        if not getattr(destination, "is_stream", False):
            raise PreconditionFailed(
                f"'{destination.name}' is not a stream and cannot be a partition of super stream "
                f"'{self.name}'"
            )

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        if self.by_key:
            add_destinations(self._keys.get(routing_key), matched)
        elif self._order:
            matched[self._order[murmur3_32(routing_key.encode()) % len(self._order)]] = None

    def _add_to_index(self, binding: Binding) -> None:
        add_binding(self._keys, binding.routing_key, binding)
        self._sort()

    def _remove_from_index(self, binding: Binding) -> None:
        remove_binding(self._keys, binding.routing_key, binding)
        self._sort()

    def _sort(self) -> None:
        ordered = sorted(self.bindings, key=partition_sort_key)
        self._order = list(dict.fromkeys(binding.destination for binding in ordered))


def partition_sort_key(binding: Binding) -> tuple[int, str]:
    """Return the sort key of super stream partitions."""
    order = (binding.arguments or {}).get(PARTITION_ORDER, _UNORDERED)
    return (order if isinstance(order, int) else _UNORDERED), binding.destination.name


def murmur3_32(data: bytes, seed: int = _SEED) -> int:
    """Return the 32-bit MurmurHash3 as an unsigned integer."""
    value = seed
    tail = len(data) & ~3
    for offset in range(0, tail, 4):
        value ^= _mix(int.from_bytes(data[offset : offset + 4], "little"))
        value = (value << 13 | value >> 19) & _MASK
        value = (value * 5 + 0xE6546B64) & _MASK
    if tail < len(data):
        value ^= _mix(int.from_bytes(data[tail:], "little"))
    value ^= len(data)
    value ^= value >> 16
    value = value * 0x85EBCA6B & _MASK
    value ^= value >> 13
    value = value * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def _mix(word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    return word * 0x1B873593 & _MASK
