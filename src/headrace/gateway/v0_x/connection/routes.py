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

    A route is good for as long as the bindings and permissions that it was made under, which the
    generation of the counters tells.
    """

    def __init__(self, connection: Peer, context: Context) -> None:
        self.connection = connection
        self.context = context
        self.counters = context.counters
        self.known: dict[bytes, Route] = {}
        self.generation = 0  # Of the routes in it.
        self.last: Route | None = None  # The one that was used last.

    def find(self, key: bytes, d: bytes | bytearray, header: int, size: int) -> Route:
        """Return the route of an address: remembered, or made now.

        ``d[header:header + size]`` is the payload of the header frame, by which some exchanges
        route.
        """
        generation = self.counters.generation
        route = self.known.get(key)
        if self.generation != generation:
            self.known.clear()  # All are void, and keep queues that may have been deleted.
            self.generation = generation
            route = None
        if route is None:
            self.connection.work_left -= C_METHOD_WORK
            payload = cut(d, header, header + size)
            route, cacheable = make_route(self.context, self.connection, key, payload)
            if cacheable:
                if len(self.known) >= ROUTES_MAX:
                    self.known.clear()
                self.known[key] = route
            else:
                self.known.pop(key, None)
                self.last = None
                return route
        self.last = route
        return route

    def forget(self) -> None:
        """Forget all routes: the connection is over."""
        self.known = {}
        self.last = None
