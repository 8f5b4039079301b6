# SPDX-License-Identifier: Apache-2.0
"""Reconnecting: the back-off, and the declarations to send again.

`Topology` keeps the declaring methods that the connection has sent. After a reconnection they are
sent again: exchanges, then queues, then bindings. Channels restore their qos and consumers
themselves.
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

_RANDOM = random.Random()  # noqa: S311 - Jitter only; the program may have seeded the global one.


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
    topology: bool = True  # Repeat the declarations of the connection.

    def delays(self, *, several: bool = False) -> Iterator[float]:
        """Yield the seconds before each attempt at one broker, or at each of `several`."""
        delay_s = self.delay_s
        passed_s = 0.0
        count = 0
        while self.attempts is None or count < self.attempts:
            delays = 1
            if several and passed_s < TAKEOVER_S:
                delays = max(1, math.ceil(min(delay_s, TAKEOVER_S) / TAKEOVER_DELAY_MAX_S))
            for _ in range(delays):
                yield delay_s / delays * _RANDOM.uniform(1 - self.jitter, 1 + self.jitter)
            passed_s += delay_s
            delay_s = min(self.delay_max_s, delay_s * self.factor)
            count += 1


class Topology:
    """The declarations of one connection that it has not deleted."""

    def __init__(self, *, exclusive: bool = True) -> None:
        """With `exclusive`, exclusive queues belong to the connection and are recorded."""
        self._exclusive = exclusive
        self.exchanges: dict[str, ExchangeDeclare] = {}
        self.queues: dict[str, QueueDeclare] = {}
        self.bindings: dict[BindingKey, QueueBind | ExchangeBind] = {}
        # The present names of server-named queues, by each earlier name.
        self.current_names: dict[str, str] = {}

    def current_name(self, queue: str) -> str:
        """Return the present name of a queue whose first name was `queue`."""
        return self.current_names.get(queue, queue)

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
        """Yield the declarations in order of dependency, each with its queue's name or "".

        The caller may rename queues during the iteration.
        """
        for exchange in list(self.exchanges.values()):
            yield "", exchange
        yield from list(self.queues.items())
        # Bindings follow the queues, whose new names they need.
        for binding in list(self.bindings.values()):
            yield "", binding

    def is_auto_delete(self, queue: str) -> bool:
        """Return True if the queue is deleted with its last consumer."""
        declaration = self.queues.get(queue)
        return declaration is not None and declaration.auto_delete

    def rename(self, old_name: str, new_name: str) -> None:
        """Record the new name of a queue that the broker names."""
        self.queues[new_name] = self.queues.pop(old_name)
        for original, current in list(self.current_names.items()):
            if current == old_name:
                self.current_names[original] = new_name
        self.current_names[old_name] = new_name
        self.current_names.pop(new_name, None)
        for key, binding in list(self.bindings.items()):
            if isinstance(binding, QueueBind) and binding.queue == old_name:
                del self.bindings[key]
                renamed = binding.replaced(queue=new_name)
                self.bindings[_binding_key(renamed)] = renamed

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
