# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.server.net.watched cimport Watched

cdef long IN, OUT, READ, WRITE

@cython.final
cdef class HotSockets:
    cdef public object epoll
    cdef public dict keys
    cdef dict transports

    @cython.locals(events=long)
    cpdef change(self, Watched transport)
    @cython.locals(events=long, transport=Watched, ready=list)
    cpdef list dispatch(self, list polled)
    cdef serve(self, Watched transport, long events)
