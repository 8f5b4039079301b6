# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.route cimport Route, will_last
from headrace.gateway.v0_10.session.completion cimport Completion
from headrace.gateway.v0_10.session.context cimport SessionContext
from headrace.gateway.v0_10.session.subscription cimport Subscription
from headrace.gateway.v0_10.session.transfer cimport ParsedTransfer
from headrace.model.message cimport (
    C_KIND_TRANSFER, C_LARGE, C_PERSISTENT, C_REDELIVERED, Message, new_message,
)
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.dispatch cimport Consumer
from headrace.model.counters cimport Counters
from headrace.model.ports cimport Store
from headrace.protocol.v0_10.session.received cimport ReceivedCommands
from headrace.wire.memory cimport cut, same

@cython.final
cdef class Publisher:
    cdef SessionContext session
    cdef public ParsedTransfer transfer
    cdef Completion completion
    cdef ReceivedCommands received
    cdef Counters counters
    cdef Store store
    cdef unsigned long long position

    @cython.locals(transfer=ParsedTransfer, counters=Counters, route=Route, refused=cython.int)
    cdef publish(
        self, const unsigned char* d, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, Py_ssize_t body, Py_ssize_t body_end
    )
    @cython.locals(transfer=ParsedTransfer, route=Route, refused=cython.int)
    cpdef publish_large(
        self, bytes start, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, tuple parts, unsigned long long body_size
    )
    @cython.locals(transfer=ParsedTransfer, counters=Counters, seq=cython.ulonglong, position=cython.ulonglong,
                   refused=cython.int, message=Message, data=bytes, queue=Queue, kept=cython.bint,
                   consumer=Consumer)
    cdef int spread(
        self, Route route, const unsigned char* d, Py_ssize_t body, Py_ssize_t body_end,
        tuple parts, unsigned long long body_size
    ) except -1
    cdef put(
        self, Subscription consumer, const unsigned char* d, Py_ssize_t body, Py_ssize_t body_end
    )
    @cython.locals(transfer=ParsedTransfer, lasting=cython.bint, refusing=tuple)
    cdef publish_once(
        self, Route route, tuple number, bytes body, tuple parts, unsigned long long body_size
    )
    @cython.locals(session=SessionContext, transfer=ParsedTransfer, queue=Queue, message=Message)
    cpdef publish_rarely(
        self, Route route, bytes body, tuple parts, unsigned long long body_size
    )
    @cython.locals(transfer=ParsedTransfer, message=Message)
    cdef Message message_of(self, bytes body, tuple parts, unsigned long long body_size)
    @cython.locals(transfer=ParsedTransfer, message=Message, queue=Queue)
    cdef int pass_on(
        self, object interception, Route route, bytes body, tuple parts, unsigned long long body_size
    ) except -1
    cpdef object source(self)
    @cython.locals(transfer=ParsedTransfer)
    cpdef unroutable(self, int code, str text)
    cpdef turn_away(self, str text)
    cpdef reject(self, int code, str text)
