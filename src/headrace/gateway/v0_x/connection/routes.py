# SPDX-License-Identifier: Apache-2.0
"""The cache of the routes that a 0-8, 0-9 or 0-9-1 connection publishes by.

:func:`headrace.gateway.v0_x.connection.routing.make_route` makes the routes.
"""

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route
    from headrace.gateway.v0_x.peer import Peer
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.wire.memory import cut

from headrace.gateway.connection.context import Context
from headrace.gateway.v0_x.connection.routing import make_route

ROUTES_MAX = 4096  # Cached routes of one connection; a further route clears the cache.


class Routes:
    """The cached routes of one connection, by address.

    A route is valid until bindings or permissions change, which increments the generation of the
    counters.
    """

    def __init__(self, connection: Peer, context: Context) -> None:
        self.connection = connection
        self.context = context
        self.counters = context.counters
        self.by_address: dict[bytes, Route] = {}
        self.generation = 0  # The generation that the routes in ``by_address`` were made in.
        self.last: Route | None = None  # The last result of ``find``, if it was cached.

    def find(self, key: bytes, buffer: bytes | bytearray, header: int, size: int) -> Route:
        """Return the cached route of an address, or make it.

        ``buffer[header:header + size]`` is the payload of the header frame, by which some exchanges
        route.
        """
        generation = self.counters.generation
        route = self.by_address.get(key)
        if self.generation != generation:
            self.by_address.clear()  # All are void, and refer to queues that may be deleted.
            self.generation = generation
            route = None
        if route is None:
            self.connection.work_left -= C_METHOD_WORK
            payload = cut(buffer, header, header + size)
            route, cacheable = make_route(self.context, self.connection, key, payload)
            if cacheable:
                if len(self.by_address) >= ROUTES_MAX:
                    self.by_address.clear()
                self.by_address[key] = route
            else:
                self.by_address.pop(key, None)
                self.last = None
                return route
        self.last = route
        return route

    def clear(self) -> None:
        """Drop all routes, as the connection has ended."""
        self.by_address = {}
        self.last = None
