# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.server.net.watched_socket cimport WatchedSocket

cdef long IN, OUT, READ, WRITE

@cython.final
cdef class HotSockets:
    cdef public object epoll
    cdef public dict keys
    cdef dict transports

    @cython.locals(events=long)
    cpdef change(self, WatchedSocket transport)
    @cython.locals(events=long, transport=WatchedSocket, ready=list)
    cpdef list dispatch(self, list polled)
    cdef serve(self, WatchedSocket transport, long events)
