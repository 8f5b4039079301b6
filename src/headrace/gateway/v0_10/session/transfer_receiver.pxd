# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.distributor cimport Distributor, Publish, ready_queues
from headrace.gateway.messages.route cimport Route
from headrace.gateway.v0_10.session.completion cimport Completion
from headrace.gateway.v0_10.session.context cimport SessionContext
from headrace.gateway.v0_10.session.subscription cimport Subscription
from headrace.gateway.v0_10.session.transfer cimport ParsedTransfer
from headrace.model.counters cimport Counters
from headrace.model.message cimport C_KIND_TRANSFER, C_REDELIVERED, Message
from headrace.model.queue.destination cimport Consumer
from headrace.model.tallies cimport ChannelTally
from headrace.protocol.v0_10.session.port cimport C_INLINE_BODY_MAX
from headrace.protocol.v0_10.session.received cimport ReceivedCommands
from headrace.wire.memory cimport cut, same

cdef class TransferDistributor(Distributor):
    cdef ParsedTransfer transfer

    cdef bytes message_data(
        self, Publish publish, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end
    )
    cdef bint put(
        self, Publish publish, Consumer consumer, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end
    ) except -1

@cython.final
cdef class TransferReceiver:
    cdef SessionContext session
    cdef public ParsedTransfer transfer
    cdef public TransferDistributor distributor
    cdef Completion completion
    cdef ReceivedCommands received
    cdef Counters counters
    cdef ChannelTally tally

    @cython.locals(transfer=ParsedTransfer, route=Route, refused=cython.int)
    cdef publish(
        self, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, Py_ssize_t body, Py_ssize_t body_end
    )
    @cython.locals(transfer=ParsedTransfer, route=Route)
    cpdef publish_large(
        self, bytes start, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, tuple parts, unsigned long long body_size
    )
    @cython.locals(transfer=ParsedTransfer)
    cdef finish(self, int refused)
    @cython.locals(session=SessionContext, transfer=ParsedTransfer)
    cpdef publish_on_slow_path(self, Route route, bytes body)
    @cython.locals(transfer=ParsedTransfer, message=Message, queues=tuple)
    cpdef publish_in_transaction(self, object transaction, Route route, bytes body)
    @cython.locals(distributor=TransferDistributor, data=bytes)
    cdef Message make_message(self, bytes body)
    @cython.locals(transfer=ParsedTransfer, distributor=TransferDistributor, data=bytes)
    cpdef int intercept(self, Route route, bytes body) except -1
    cpdef object source(self)
    @cython.locals(transfer=ParsedTransfer)
    cpdef publish_once(self, Route route, tuple number, bytes body)
    cpdef free_publishing_id(self)
    @cython.locals(transfer=ParsedTransfer)
    cpdef reject_unroutable(self, Route route, int code, str text)
    cpdef refuse(self, str text)
    cpdef reject(self, int code, str text)
