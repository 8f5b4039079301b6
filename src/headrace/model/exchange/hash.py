# SPDX-License-Identifier: Apache-2.0
"""Exchanges that pick one destination by a hash: consistent hash and modulus hash.

``x-consistent-hash``: a binding's routing key is its weight. The hash is of the message's routing
key, or of a header or property (``hash-header`` or ``x-hash-on``, ``hash-property``). Equal values
go to the same destination, and adding or removing a binding moves few values. The destination
depends on the set of bindings only, not on their order, so it is the same after a restart. Of the
algorithms (``x-algorithm``), ``ring`` moves the fewest values and ``jump`` is the most even.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Unpack

from headrace.model.arguments.canonical import canonical
from headrace.model.arguments.exchange import one_of, string
from headrace.model.arguments.memory_estimate import ITEM
from headrace.model.errors import InvalidArgument, PreconditionFailed
from headrace.model.exchange.exchange import COMMON_ARGUMENTS, Exchange, ExchangeProperties, Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.model.arguments.values import Check
    from headrace.model.exchange.binding import Binding, BindingDestination

HASH_HEADER = "hash-header"
HASH_ON = "x-hash-on"  # The name of HASH_HEADER in another broker.
HASH_PROPERTY = "hash-property"
ALGORITHM = "x-algorithm"
PROPERTIES = ("message_id", "correlation_id", "timestamp")
WEIGHT_MAX = 1000  # The maximum weight of one binding.
WEIGHTS_MAX = 65536  # The maximum sum of the weights of an exchange's bindings.
POINTS_MAX = 65536  # Points of a ring, but at least one for each unit of weight.
POINTS_PER_UNIT_MAX = 128  # Points for each unit of weight.
POINT_BYTES = 60  # Memory of a point.
_POINT = 8  # Bytes of a point on the ring.
_BLOCK = 64  # Bytes of one hash: eight points.


class HashExchange(Exchange):
    """The base class of both types: bindings, sorted on the first message after a change."""

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self._order: list[Binding] | None = None

    def order(self) -> list[Binding]:
        """Return the bindings sorted by destination."""
        if self._order is None:
            self._order = sorted(self.bindings, key=binding_sort_key)
        return self._order

    def _add_to_index(self, binding: Binding) -> None:
        self._order = None

    def _remove_from_index(self, binding: Binding) -> None:
        self._order = None


class ModulusHashExchange(HashExchange):
    """Picks the binding whose index is the routing key's hash modulo the number of bindings."""

    type = "x-modulus-hash"

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        order = self.order()
        if order:
            matched[order[stable_hash(routing_key.encode()) % len(order)].destination] = None


class ConsistentHashExchange(HashExchange):
    """Gives each binding a share of the hash space in proportion to its weight."""

    type = "x-consistent-hash"
    arguments_known: Mapping[str, Check] = {
        **COMMON_ARGUMENTS,
        HASH_HEADER: string,
        HASH_ON: string,
        HASH_PROPERTY: string,
        ALGORITHM: one_of(("ring", "jump"), "\"unsupported algorithm '{}'\""),
    }

    index_memory_max = POINTS_MAX * POINT_BYTES

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        arguments = self.arguments
        header = arguments.get(HASH_HEADER, arguments.get(HASH_ON))
        self._header = header if isinstance(header, str) else None
        property_name = arguments.get(HASH_PROPERTY)
        self._property = property_name if isinstance(property_name, str) else None
        self._jumps = arguments.get(ALGORITHM) == "jump"
        self.cacheable = self._header is None and self._property is None
        self._weights = 0  # Sum of all weights.
        self._points: list[int] = []  # Points on the ring in order.
        self._owners: list[BindingDestination] = []  # The destination of each point.

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, object], subject: str) -> None:
        super().check_arguments(arguments, subject)
        property_name = arguments.get(HASH_PROPERTY)
        if property_name is not None and property_name not in PROPERTIES:
            raise PreconditionFailed(f"Unsupported property: {property_name}")
        if property_name is not None and (HASH_HEADER in arguments or HASH_ON in arguments):
            raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
        if HASH_HEADER in arguments and HASH_ON in arguments:
            raise PreconditionFailed("hash-header and x-hash-on are mutually exclusive")

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        if re.fullmatch(r"-?[0-9]+", routing_key) is None:
            raise InvalidArgument(f"The binding key must be an integer: {routing_key!r}")
        if len(routing_key) > 10 or int(routing_key) > WEIGHT_MAX:
            raise InvalidArgument(f"The binding key must not be greater than {WEIGHT_MAX}")
        if int(routing_key) < 1:
            raise InvalidArgument("The binding key must be greater than 0")

    def check_room(self, routing_key: str) -> None:
        if self._weights + int(routing_key) > WEIGHTS_MAX:
            raise PreconditionFailed(
                f"the weights of the bindings of exchange '{self.name}' may not be more than "
                f"{WEIGHTS_MAX} in all"
            )

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        if not self.bindings:
            return
        if not self._owners:
            self._build()
        value = stable_hash(self._hash_input(routing_key, headers))
        if self._jumps:
            index = jump_bucket(value, len(self._owners))
        else:
            index = bisect_right(self._points, value) % len(self._points)
        matched[self._owners[index]] = None

    def _hash_input(self, routing_key: str, headers: Headers) -> bytes:
        """Return the value that is hashed; b"" if the header or property is missing."""
        value: object = routing_key
        if self._header is not None:
            value = headers().get(self._header)
        elif self._property is not None:
            read: Callable[[], Mapping[str, object]] | None = getattr(headers, "properties", None)
            value = None if read is None else read().get(self._property)
        canonical_value = canonical(value)
        if canonical_value is None:
            return b""
        if isinstance(canonical_value, bytes):
            return canonical_value
        return repr(canonical_value).encode()

    def index_memory(self, binding: Binding) -> int:
        return self._ring_memory(self._weights + int(binding.routing_key)) - self._ring_memory(
            self._weights
        )

    def _ring_memory(self, weights: int) -> int:
        """Return the memory of the points for a weight in bytes."""
        if self._jumps:
            return weights * ITEM
        return min(weights * POINTS_PER_UNIT_MAX, POINTS_MAX) * POINT_BYTES

    def _add_to_index(self, binding: Binding) -> None:
        super()._add_to_index(binding)
        self._weights += int(binding.routing_key)
        self._points, self._owners = [], []

    def _remove_from_index(self, binding: Binding) -> None:
        super()._remove_from_index(binding)
        self._weights -= int(binding.routing_key)
        self._points, self._owners = [], []

    def _build(self) -> None:
        """Build the ring, or the table of buckets."""
        if self._jumps:
            for binding in self.order():
                self._owners += [binding.destination] * int(binding.routing_key)
            return
        points_per_unit = max(1, min(POINTS_PER_UNIT_MAX, POINTS_MAX // self._weights))
        numbered_points: list[tuple[int, int]] = []
        order = self.order()
        for number, binding in enumerate(order):
            points = ring_points(binding, points_per_unit * int(binding.routing_key))
            numbered_points += [(point, number) for point in points]
        numbered_points.sort()
        self._points = [point for point, _ in numbered_points]
        self._owners = [order[number].destination for _, number in numbered_points]


def binding_sort_key(binding: Binding) -> tuple[str, str, str]:
    """Return the sort key of a binding, independent of the order of binding."""
    destination = binding.destination
    kind = "exchange" if isinstance(destination, Exchange) else "queue"
    return kind, destination.name, binding.routing_key


def stable_hash(value: bytes) -> int:
    """Return a 64-bit hash that is the same on every machine and in every release."""
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "big")


def ring_points(binding: Binding, count: int) -> list[int]:
    """Return ``count`` points on the ring; a smaller count returns a prefix of them."""
    kind, name, _ = binding_sort_key(binding)
    seed = f"{kind}/{name}/".encode()
    points: list[int] = []
    for block in range(-(-count * _POINT // _BLOCK)):
        block_hash = hashlib.blake2b(seed + block.to_bytes(4, "big")).digest()
        points += [
            int.from_bytes(block_hash[offset : offset + _POINT], "big")
            for offset in range(0, _BLOCK, _POINT)
        ]
    return points[:count]


def jump_bucket(value: int, buckets: int) -> int:
    """Return the bucket of a hash.

    One more bucket moves only the hashes that fall into it (J. Lamping, E. Veach: A Fast, Minimal
    Memory, Consistent Hash Algorithm, 2014).
    """
    bucket = -1
    next_bucket = 0
    while next_bucket < buckets:
        bucket = next_bucket
        value = (value * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        next_bucket = int((bucket + 1) * (1 << 31) / ((value >> 33) + 1))
    return bucket
