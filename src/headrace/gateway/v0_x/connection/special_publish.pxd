# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.route cimport Route, will_last
from headrace.gateway.v0_x.channel.channel cimport Channel
from headrace.gateway.v0_x.connection.queue_fanout cimport Spreader
from headrace.model.message cimport C_LARGE, Message, new_message
from headrace.model.ports cimport Store
from headrace.model.queue.queue cimport Queue
from headrace.model.transaction.transaction cimport Transaction
from headrace.protocol.endpoint cimport C_METHOD_WORK
from headrace.wire.memory cimport cut, get32

cdef long long TX_OCTETS_MAX
cdef int NO_ROUTE
cdef int NO_CONSUMERS
cdef unsigned int MANDATORY
cdef unsigned int IMMEDIATE

@cython.final
cdef class Publish:
    cdef bytes data
    cdef Py_ssize_t address_len
    cdef Py_ssize_t header
    cdef unsigned long long body_size
    cdef tuple parts
    cdef unsigned int mode
    cdef unsigned int priority
    cdef long long deadline_ms
    cdef tuple copies
    cdef tuple number
    cdef long long delay_ms
    cdef Route route

cdef class SpecialPublisher(Spreader):
    cdef bint copied
    cdef bint numbered
    cdef bint delays

    @cython.locals(p=Publish)
    cdef Publish taken(
        self, const unsigned char* d, Py_ssize_t args, Py_ssize_t address_len, Py_ssize_t header,
        Py_ssize_t end, unsigned long long body_size, tuple parts
    )
    cdef look_closely(self, Publish p)
    @cython.locals(size=Py_ssize_t, route=Route)
    cdef Route route_of(self, Publish p)
    @cython.locals(message=Message)
    cdef Message message_of(self, Publish p)
    cdef put_off(self, Publish p)
    cdef int give(self, Publish p, Route route) except -1
    cdef finish(self, Channel channel, Publish p, int refused)
    cdef publish_marked(self, Channel channel, Publish p)
    cdef publish_passing(self, Channel channel, Publish p)
    @cython.locals(bits=cython.uint, queue=Queue, nowhere=cython.bint)
    cdef int pass_on(self, Channel channel, Publish p, bint inside) except -1
    @cython.locals(bits=cython.uint, lasting=cython.bint, queue=Queue, route=Route)
    cdef int publish_once(self, Channel channel, Publish p) except -1
    @cython.locals(bits=cython.uint, route=Route)
    cdef int publish_rarely(self, Channel channel, Publish p) except -1
    cdef send_back(self, Channel channel, Publish p, int code)
    cdef publish_later(self, Channel channel, Publish p)
    @cython.locals(message=Message, bits=cython.uint, transaction=Transaction)
    cdef publish_in_branch(self, Channel channel, Publish p)
    @cython.locals(store=Store, p=Publish, size=Py_ssize_t, refused=cython.int)
    cpdef commit(self, Channel channel)
    cdef int publish_now(self, Channel channel, Publish p) except -1

@cython.locals(queue=Queue)
cdef tuple at_once(tuple queues)
cpdef tuple split_address(bytes address)
