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
    C_CC_KEYS = 1
    C_PUBLISHING_ID = 2
    C_DELAYED = 4
    C_DIRECT_REPLY_TO = 8
    C_MANDATORY = 1
    C_IMMEDIATE = 2

cdef long long TX_BYTES_MAX
cdef int NO_ROUTE
cdef int NO_CONSUMERS

@cython.final
cdef class DetachedPublish(Publish):
    cdef public int features
    cdef public bytes data
    cdef public Py_ssize_t header
    cdef public tuple cc_keys
    cdef public tuple publishing_id
    cdef public long long delay_ms
    cdef public Route route

    cdef Route assigned_route(self)
    cdef unsigned int bits(self) except? 255

@cython.final
cdef class SlowPathReceiver:
    cdef Peer connection
    cdef object context
    cdef Routes routes
    cdef public Distributor distributor

    @cython.locals(detached=DetachedPublish)
    cdef DetachedPublish detach(
        self, Publish publish, int features, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t header,
        Py_ssize_t end
    )
    cdef read_headers(self, DetachedPublish publish)
    @cython.locals(size=Py_ssize_t, start=Py_ssize_t)
    cdef Route find_route(self, DetachedPublish publish)
    cdef delay(self, DetachedPublish publish)
    cdef int distribute(self, DetachedPublish publish, Route route) except -1
    cdef finish(self, Channel channel, DetachedPublish publish, int refused)
    cdef refuse(self, Channel channel, Publish publish, Route route)
    cdef publish_with_features(self, Channel channel, DetachedPublish publish)
    cdef publish_intercepted(self, Channel channel, DetachedPublish publish)
    @cython.locals(bits=cython.uint, unroutable=cython.bint, route=Route)
    cdef int intercept(self, Channel channel, DetachedPublish publish, bint in_transaction) except -1
    @cython.locals(bits=cython.uint, route=Route)
    cdef int publish_once(self, Channel channel, DetachedPublish publish, bint in_transaction) except -1
    @cython.locals(bits=cython.uint, route=Route, code=cython.int)
    cdef int publish_or_return(self, Channel channel, DetachedPublish publish) except -1
    cdef drop(self, Channel channel, Publish publish, Route route)
    cdef count_unrouted(self, Publish publish, Route route)
    @cython.locals(route=Route)
    cdef int reject_immediate(self, Channel channel, DetachedPublish publish) except -2
    cdef int publish_content(self, Channel channel, DetachedPublish publish) except -2
    @cython.locals(route=Route)
    cdef send_return(self, Channel channel, DetachedPublish publish, int code)
    cdef defer_publish(self, Channel channel, DetachedPublish publish)
    @cython.locals(message=Message, bits=cython.uint, transaction=Transaction)
    cdef publish_in_branch(self, Channel channel, DetachedPublish publish)
    @cython.locals(store=Store, publish=DetachedPublish, refused=cython.int)
    cpdef commit(self, Channel channel)
    cdef int commit_publish(self, Channel channel, DetachedPublish publish) except -1
