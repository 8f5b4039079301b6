# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.v0_10.session.publisher cimport Publisher
from headrace.gateway.v0_10.session.subscription cimport Subscription, serial_distance
from headrace.model.message cimport Message
from headrace.model.queue.queue cimport Queue
from headrace.protocol.v0_10.attachment cimport C_ATTACHED
from headrace.protocol.v0_10.session.session cimport Session as ProtocolSession
from headrace.wire.memory cimport get32

cdef unsigned int SERIAL_MASK
cdef int ACCEPT
cdef int REQUEUE

cdef class Session(Publisher):
    cdef public dict consumers
    cdef public Queue reply_queue
    cdef public object files
    cdef public object packets
    cdef public list on_end
    cdef public bint selected_tx
    cdef public bint selected_dtx

    @cython.locals(last=cython.uint)
    cdef accept(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    cpdef settle_ranges(self, list ranges, int outcome)
    cdef finish_settling(self)
    cpdef drain_touched(self)
    cpdef forget_browsed(self, unsigned int first, unsigned int last)
    @cython.locals(message=Message, subscription=Subscription)
    cpdef list acquire(self, list ranges)
    cpdef part_again(self)
    cpdef give_back(self, unsigned int first, unsigned int last)
    @cython.locals(subscription=Subscription)
    cpdef refresh_all(self)
    cpdef go_on_flushing(self, Subscription subscription)
    @cython.locals(subscription=Subscription, message=Message, queue=Queue)
    cpdef wind_up(self)
    cpdef leave_queue(self, Queue queue)
