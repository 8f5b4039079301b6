# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.v0_10.session.completion cimport Completion
from headrace.gateway.v0_10.session.context cimport SessionContext
from headrace.gateway.v0_10.session.deliveries cimport Deliveries, check_sent
from headrace.gateway.v0_10.session.transfer_receiver cimport TransferReceiver
from headrace.gateway.v0_10.session.subscription cimport Subscription, WindowCredit
from headrace.gateway.v0_10.session.transfer cimport ParsedTransfer
from headrace.model.message cimport Message
from headrace.model.queue.queue cimport Queue
from headrace.protocol.v0_10.session.port cimport C_ATTACHED
from headrace.protocol.v0_10.session.session cimport Session
from headrace.wire.memory cimport get32

cdef unsigned int SERIAL_MASK
cdef int ACCEPT
cdef int REQUEUE
cdef int DISCARD

cdef class Session010(SessionContext):
    cdef public Deliveries deliveries
    cdef public WindowCredit windows
    cdef public Completion completion
    cdef public TransferReceiver transfer_receiver
    cdef public dict subscriptions
    cdef public dict consumers
    cdef public dict plug_ins
    cdef public bint selected_tx
    cdef public bint selected_dtx

    @cython.locals(last=cython.uint)
    cdef accept(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(deliveries=Deliveries)
    cpdef settle_ranges(self, list ranges, int outcome)
    @cython.locals(deliveries=Deliveries)
    cdef finish_settling(self)
    cpdef requeue_lost(self, unsigned int first, unsigned int last)
    @cython.locals(subscription=Subscription)
    cpdef refresh_all(self)
    cpdef continue_flush(self, Subscription subscription)
    @cython.locals(subscription=Subscription, message=Message, queue=Queue)
    cpdef release_resources(self)
    cpdef leave_queue(self, Queue queue)
