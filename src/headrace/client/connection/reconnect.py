# SPDX-License-Identifier: Apache-2.0
"""Reconnecting: when to try again, and which declarations to send again.

`Reconnect` is the back-off. `Topology` keeps the declarations of this connection as the very
methods that were sent. To restore it is to send them again: exchanges, then queues, then bindings.
Channels restore their qos and consumers themselves.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.protocol.codec_0_x import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    MethodBase,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)
from headrace.wire.table import encode_table

TAKEOVER_S = 60.0  # The time in which another broker takes over a virtual host.
TAKEOVER_DELAY_MAX_S = 0.5

BindingKey = tuple[str, str, str, str, bytes]

_CHANCE = random.Random()  # noqa: S311 - of our own: a program may have seeded the other one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """Exponential back-off with jitter. With `attempts` None it never gives up.

    Where one of several brokers may take over, each is tried at least every half second in the
    first minute; the time until the client gives up stays the same.
    """

    delay_s: float = 0.1
    delay_max_s: float = 30.0
    factor: float = 2.0
    jitter: float = 0.2
    attempts: int | None = None
    topology: bool = True  # Whether to repeat the declarations of the connection.

    def delays(self, *, several: bool = False) -> Iterator[float]:
        """Give the seconds to wait before each attempt, at one or at each of `several` brokers."""
        delay_s = self.delay_s
        passed_s = 0.0
        count = 0
        while self.attempts is None or count < self.attempts:
            delays = 1
            if several and passed_s < TAKEOVER_S:
                delays = max(1, math.ceil(min(delay_s, TAKEOVER_S) / TAKEOVER_DELAY_MAX_S))
            for _ in range(delays):
                yield delay_s / delays * _CHANCE.uniform(1 - self.jitter, 1 + self.jitter)
            passed_s += delay_s
            delay_s = min(self.delay_max_s, delay_s * self.factor)
            count += 1


class Topology:
    """The declarations of one connection that it has not deleted."""

    def __init__(self, *, exclusive: bool = True) -> None:
        """`exclusive`: exclusive queues belong to the connection, which can restore them."""
        self._exclusive = exclusive
        self.exchanges: dict[str, ExchangeDeclare] = {}
        self.queues: dict[str, QueueDeclare] = {}
        self.bindings: dict[BindingKey, QueueBind | ExchangeBind] = {}
        self.names: dict[str, str] = {}  # The present names of server-named queues.

    def name(self, queue: str) -> str:
        """Return the present name of a queue whose first name was `queue`."""
        return self.names.get(queue, queue)

    def record(self, method: MethodBase, name: str = "") -> None:
        """Record an executed method; `name` is a queue name that the broker chose."""
        match method:
            case ExchangeDeclare(passive=False):
                self.exchanges[method.exchange] = method
            case ExchangeDelete():
                self.exchanges.pop(method.exchange, None)
                self._forget_bindings(exchange=method.exchange)
            case QueueDeclare(passive=False):
                if self._exclusive or not method.exclusive:
                    self.queues[method.queue or name] = method
            case QueueDelete():
                self.forget_queue(method.queue)
            case QueueBind() | ExchangeBind():
                self.bindings[_binding_key(method)] = method
            case QueueUnbind() | ExchangeUnbind():
                self.bindings.pop(_binding_key(method), None)

    def forget_queue(self, queue: str) -> None:
        """Forget a deleted queue and its bindings."""
        self.queues.pop(queue, None)
        for key in [key for key in self.bindings if key[0] == "queue" and key[1] == queue]:
            del self.bindings[key]

    def records(self) -> Iterator[tuple[str, MethodBase]]:
        """All declarations in an order that works, each with the name of the queue if it is one's.

        The names of queues may change while this is iterated over.
        """
        for exchange in list(self.exchanges.values()):
            yield "", exchange
        yield from list(self.queues.items())
        # Bindings follow the queues, whose new names they need.
        for binding in list(self.bindings.values()):
            yield "", binding

    def is_auto_delete(self, queue: str) -> bool:
        """Return True if the queue is deleted with its last consumer."""
        declared = self.queues.get(queue)
        return declared is not None and declared.auto_delete

    def rename(self, old: str, new: str) -> None:
        """Record the new name of a queue that the broker names."""
        self.queues[new] = self.queues.pop(old)
        for first, present in list(self.names.items()):
            if present == old:
                self.names[first] = new
        self.names[old] = new
        self.names.pop(new, None)
        for key, binding in list(self.bindings.items()):
            if isinstance(binding, QueueBind) and binding.queue == old:
                del self.bindings[key]
                bound = binding.replaced(queue=new)
                self.bindings[_binding_key(bound)] = bound

    def _forget_bindings(self, exchange: str) -> None:
        for key, binding in list(self.bindings.items()):
            if key[2] == exchange or (
                isinstance(binding, ExchangeBind) and binding.destination == exchange
            ):
                del self.bindings[key]


def _binding_key(method: QueueBind | ExchangeBind | QueueUnbind | ExchangeUnbind) -> BindingKey:
    arguments = encode_table(method.arguments)
    if isinstance(method, QueueBind | QueueUnbind):
        return "queue", method.queue, method.exchange, method.routing_key, arguments
    return "exchange", method.destination, method.source, method.routing_key, arguments
