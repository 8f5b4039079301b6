# SPDX-License-Identifier: Apache-2.0
"""The routes that a 0-8, 0-9 or 0-9-1 connection has published by, remembered by address.

They are made by :func:`headrace.gateway.v0_x.connection.routing.make_route`.
"""

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route
    from headrace.gateway.v0_x.peer import Peer
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.wire.memory import cut

from headrace.gateway.connection.context import Context
from headrace.gateway.v0_x.connection.routing import make_route

ROUTES_MAX = 4096  # Remembered routes of one connection; all are forgotten when it is full.


class Routes:
    """The routes of one connection.

    A route is valid until bindings or permissions change, which increments the generation of the
    counters.
    """

    def __init__(self, connection: Peer, context: Context) -> None:
        self.connection = connection
        self.context = context
        self.counters = context.counters
        self.by_address: dict[bytes, Route] = {}
        self.generation = 0  # Of the routes in ``by_address``.
        self.last: Route | None = None  # The route that was used last.

    def find(self, key: bytes, d: bytes | bytearray, header: int, size: int) -> Route:
        """Return the route of an address; make it unless it is remembered.

        ``d[header:header + size]`` is the payload of the header frame, by which some exchanges
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
            payload = cut(d, header, header + size)
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

    def forget(self) -> None:
        """Forget all routes: the connection is over."""
        self.by_address = {}
        self.last = None
