# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.v0_x.peer cimport Peer
from headrace.gateway.messages.distributor cimport Distributor, Publish, ready_queues
from headrace.gateway.messages.route cimport Route
from headrace.gateway.v0_x.channel.channel cimport Channel
from headrace.gateway.v0_x.connection.routes cimport Routes
from headrace.model.message cimport Message
from headrace.model.ports cimport Store
from headrace.model.transaction.transaction cimport Transaction
from headrace.protocol.endpoint cimport C_METHOD_WORK
from headrace.protocol.v0_x.frames cimport C_PAYLOAD_AT, C_SIZE_AT
from headrace.wire.memory cimport cut, get32

cdef enum:
    C_COPIES = 1
    C_NUMBERED = 2
    C_DELAYED = 4
    C_DIRECT_REPLY_TO = 8
    C_MANDATORY = 1
    C_IMMEDIATE = 2

cdef long long TX_BYTES_MAX
cdef int NO_ROUTE
cdef int NO_CONSUMERS

@cython.final
cdef class SpecialPublish(Publish):
    cdef public int marks
    cdef public bytes data
    cdef public Py_ssize_t header
    cdef public tuple copies
    cdef public tuple number
    cdef public long long delay_ms
    cdef public Route route

    cdef Route known_route(self)
    cdef unsigned int bits(self) except? 255

@cython.final
cdef class SpecialPublisher:
    cdef Peer connection
    cdef object context
    cdef Routes routes
    cdef public Distributor distributor

    @cython.locals(special=SpecialPublish)
    cdef SpecialPublish cut_out(
        self, Publish p, int marks, const unsigned char* d, Py_ssize_t args, Py_ssize_t header,
        Py_ssize_t end
    )
    cdef read_headers(self, SpecialPublish p)
    @cython.locals(size=Py_ssize_t, start=Py_ssize_t)
    cdef Route route_of(self, SpecialPublish p)
    cdef delay(self, SpecialPublish p)
    cdef int distribute(self, SpecialPublish p, Route route) except -1
    cdef finish(self, Channel channel, SpecialPublish p, int refused)
    cdef refuse(self, Channel channel, Publish p, Route route)
    cdef publish_marked(self, Channel channel, SpecialPublish p)
    cdef publish_intercepted(self, Channel channel, SpecialPublish p)
    @cython.locals(bits=cython.uint, unroutable=cython.bint, route=Route)
    cdef int intercept(self, Channel channel, SpecialPublish p, bint inside) except -1
    @cython.locals(bits=cython.uint, route=Route)
    cdef int publish_once(self, Channel channel, SpecialPublish p) except -1
    @cython.locals(bits=cython.uint, route=Route)
    cdef int publish_or_return(self, Channel channel, SpecialPublish p) except -1
    cdef drop(self, Channel channel, Publish p, Route route)
    cdef int publish_content(self, Channel channel, SpecialPublish p) except -2
    @cython.locals(route=Route)
    cdef send_return(self, Channel channel, SpecialPublish p, int code)
    cdef defer_publish(self, Channel channel, SpecialPublish p)
    @cython.locals(message=Message, bits=cython.uint, transaction=Transaction)
    cdef publish_in_branch(self, Channel channel, SpecialPublish p)
    @cython.locals(store=Store, p=SpecialPublish, refused=cython.int)
    cpdef commit(self, Channel channel)
    cdef int commit_publish(self, Channel channel, SpecialPublish p) except -1
