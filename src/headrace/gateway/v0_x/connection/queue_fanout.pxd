# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.connection.peer cimport Peer
from headrace.gateway.messages.route cimport Route
from headrace.gateway.v0_x.channel.channel cimport Channel
from headrace.model.message cimport C_LARGE, C_PERSISTENT, Message, new_message
from headrace.model.ports cimport Store
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.dispatch cimport Consumer
from headrace.model.counters cimport Counters
from headrace.protocol.output cimport C_SHARE_MIN
from headrace.protocol.endpoint cimport C_METHOD_WORK
from headrace.wire.memory cimport cut

cdef Py_ssize_t ROUTES_MAX

cdef class Spreader(Peer):
    cdef public object context
    cdef public Counters counters
    cdef public Store store
    cdef public dict routes
    cdef public Route route
    cdef unsigned int mode
    cdef unsigned int priority
    cdef long long deadline_ms

    @cython.locals(generation=cython.ulonglong, route=Route)
    cdef Route find_route(
        self, bytes key, const unsigned char* d, Py_ssize_t header, Py_ssize_t size
    )
    @cython.locals(counters=Counters, seq=cython.ulonglong, position=cython.ulonglong,
                   refused=cython.int, message=Message, data=bytes, queue=Queue, kept=cython.bint,
                   consumer=Consumer)
    cdef int spread(
        self, Route route, const unsigned char* d, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t end, unsigned long long body_size, tuple parts
    ) except -1
    cdef refuse(self, Channel channel, Route route)
