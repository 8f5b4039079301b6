# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.counters cimport C_MESSAGE_OVERHEAD, C_PAGED_WEIGHT, Counters
from headrace.model.message cimport C_GONE, C_PAGED, C_REDELIVERED, C_SCRATCH, Message, measure
from headrace.model.queue.delivery_mark cimport RESERVATION, DeliveryMark
from headrace.model.queue.destination cimport Consumer, ConsumerRound, Destination
from headrace.model.queue.ready_list cimport ReadyList
from headrace.model.tallies cimport QueueTally

# The parts that act on their queue cimport it: it is declared before they are.
cdef class Queue(Destination)

from headrace.model.queue.browsing cimport Browsing
from headrace.model.queue.dead_letter_sender cimport DeadLetterSender
from headrace.model.queue.expiry cimport Expiry
from headrace.model.queue.overflow cimport Overflow

cdef int COUNT_MAX
cdef long long RESIDENT_MIN
cdef long long RESIDENT_BYTES
cdef long long PACE_BELOW

cdef class Queue(Destination):
    cdef public bint is_retired
    cdef public Overflow limits
    cdef Expiry expiry
    cdef public Browsing browsing
    cdef readonly DeliveryMark delivery_mark
    cdef DeadLetterSender sender
    cdef public object guard
    cdef public object backoff
    cdef public dict lanes
    cdef public object view
    cdef public long long message_ttl_ms
    cdef public int delivery_limit
    cdef public str dead_letter_exchange
    cdef public str dead_letter_routing_key
    cdef public str alternate_exchange
    cdef public bint dead_letter_at_least_once
    cdef public long long pending_count
    cdef public object on_deadline
    cdef public list chunk

    cpdef Consumer ready_consumer(self)
    cpdef bint has_ready_consumer(self) except -1
    cpdef bint is_full_for(self, unsigned int body_size) except -1
    cpdef bint would_reject(self, unsigned int body_size) except -1
    @cython.locals(consumer=Consumer)
    cpdef int enqueue(self, Message message) except -1
    @cython.locals(deadline_ms=cython.longlong)
    cdef int drain_arrival(self, Message message) except -1
    cdef int push(self, Message message) except -1
    cdef int reinsert(self, Message message) except -1
    cdef int remove_arrival(self, Message message) except -1
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    cpdef dispatch_arrival(self, Consumer consumer, Message message)
    cpdef restore(self, Message message, long long arrived_ms)
    cpdef bint restore_unacked(self, Message message) except -1
    cpdef add_consumer(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)
    cdef leave_round(self, Consumer consumer)
    cpdef start_filtering(self, Consumer consumer)
    cpdef add_browser(self, Consumer consumer)
    cpdef browse_from(self, Consumer consumer, unsigned long long position)
    cpdef remove_browser(self, Consumer consumer)
    cdef Browsing browse(self)
    cpdef unpark(self, Consumer consumer)
    @cython.locals(consumer=Consumer, message=Message, consumers=ConsumerRound)
    cpdef drain(self)
    @cython.locals(message=Message)
    cpdef Message dequeue(self)
    cpdef dispatch(self, Consumer consumer, Message message)
    @cython.locals(message=Message)
    cpdef Message get(self, Consumer getter)
    @cython.locals(mark=DeliveryMark, log_position=cython.ulonglong)
    cdef reserve_for(self, Consumer consumer, Message message)
    cpdef unsigned long long record_count(
        self, Message message, unsigned int count, unsigned long long due_ms
    ) except? 0
    cpdef bint acquire(self, Message message, Consumer consumer) except -1
    cpdef bint acquire_quietly(self, Message message, Consumer consumer) except -1
    cpdef int settle(self, Message message) except -1
    cdef unassign(self, Message message)
    cpdef requeue(self, Message message)
    cpdef dead_letter_over_limit(self, Message message)
    cpdef release(self, Message message)
    cdef requeue_or_delay(self, Message message, bint delayed)
    cpdef requeue_now(self, Message message)
    cpdef redeliver(self, Message message)
    cpdef discard(self, Message message)
    cpdef on_unconvertible(self, Message message, Consumer consumer, str text)
    @cython.locals(deadline=cython.longlong)
    cpdef set_deadline(self, Message message, long long arrived_ms)
    @cython.locals(messages=list, message=Message)
    cpdef unsigned long long set_deadlines(
        self, unsigned long long first, unsigned long long last, long long arrived_ms,
        long long bytes_max,
    ) except? 0
    cpdef schedule_expiry(self, Message message)
    @cython.locals(deadline_ms=cython.longlong)
    cpdef long long expire(self, long long now_ms) except -1
    @cython.locals(counters=Counters)
    cdef int relieve_memory(self, Message message) except -1
    @cython.locals(weight=cython.longlong)
    cdef int page_out(self, Message message) except -1
    @cython.locals(paged_weight=cython.longlong)
    cdef bint load(self, Message message) except -1
    cpdef remove(self, Message message)
    cdef int dead_letter(self, Message message, str reason) except -1
    cdef count_death(self, str reason)
    @cython.locals(sender=DeadLetterSender)
    cdef dead_letter_soon(self, Message message, str reason)
    cdef DeadLetterSender dead_letter_sender(self)
    cpdef bint publish_dead_letter(self, Message message, str reason) except -1
    cpdef bint retry_dead_letter(self, Message message, str reason) except -1
    cdef int orphan(self, Message message) except -1
    cpdef int orphan_some(self, int maximum) except -1
    @cython.locals(lane=Queue)
    cpdef merge_tally(self, QueueTally total)
    cpdef notify_sampler(self)
    @cython.locals(message=Message)
    cdef int remove_ready(self, bint settle) except -1
    cpdef release_waiters(self)
    cpdef long long message_count(self) except -1
    cpdef long long held_count(self) except -1
    @cython.locals(lane=Queue)
    cpdef bint has_messages(self) except -1
    @cython.locals(lane=Queue, count=cython.longlong)
    cpdef long long ready_in_lanes(self) except -1
    @cython.locals(lane=Queue, count=Py_ssize_t)
    cpdef Py_ssize_t consumer_count(self) except -1
    @cython.locals(lane=Queue, count=cython.longlong, retained_count=cython.longlong,
                   drops_all=cython.bint)
    cpdef long long purge(self) except -1
    @cython.locals(lane=Queue)
    cpdef retire(self)
    @cython.locals(lane=Queue, count=cython.longlong)
    cpdef long long destroy(self) except -1
    @cython.locals(consumers=list, consumer=Consumer)
    cdef int cancel_consumers(self) except -1
