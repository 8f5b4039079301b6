# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.unsettled cimport Unsettled
from headrace.gateway.v0_10.session.context cimport SessionContext
from headrace.model.message cimport Message
from headrace.model.queue.destination cimport Consumer, Destination
from headrace.model.queue.ring cimport Ring

cdef Py_ssize_t BROWSED_MAX
cdef unsigned int SERIAL_MASK
cdef unsigned int SERIAL_SIGN
cdef long long SERIAL_SPAN
cdef int TRANSFERS
cdef int ACCEPT
cdef int REQUEUE
cdef int DISCARD
cdef int RELEASE

@cython.final
cdef class Deliveries:
    cdef SessionContext session
    cdef public Unsettled unsettled
    cdef public dict browsed
    cdef public dict tx_settled
    cdef public dict tx_returns
    cdef public bint has_settled_durable
    cdef public dict returned_queues

    cdef record_browsed(self, unsigned int number, Message message, Consumer consumer)
    @cython.locals(unsettled=Unsettled, ring=Ring, spilled=dict, number=cython.uint, end=Py_ssize_t,
                   index=Py_ssize_t, message=Message)
    cpdef settle_range(self, unsigned int first, unsigned int last, int outcome)
    @cython.locals(consumer=Consumer, queue=Destination)
    cdef apply_outcome(self, unsigned int number, Message message, int outcome)
    cpdef settle_in_transaction(
        self, unsigned int number, Message message, Destination queue, int outcome
    )
    cpdef drain_returned_queues(self)
    cpdef remove_browsed(self, unsigned int first, unsigned int last)
    @cython.locals(message=Message, subscription=Consumer)
    cpdef list acquire(self, list ranges)
    cpdef undo_settles(self)

cpdef check_sent(unsigned int last, unsigned int next_id)
@cython.locals(distance=cython.uint)
cpdef long long serial_distance(unsigned int a, unsigned int b) noexcept
