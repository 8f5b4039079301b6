# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_PAGED, C_REDELIVERED, C_SCRATCH, Message
from headrace.model.queue.retention cimport ReadyMessages

cdef unsigned long long RESERVATION
cdef int COUNT_MAX

cdef class Consumer:
    cdef public ServedMessages queue
    cdef public str tag
    cdef public bint no_ack
    cdef public bint exclusive
    cdef public bint no_local
    cdef public bint selective
    cdef public bint filters
    cdef public bint auto_close
    cdef public object selector
    cdef public Cursor cursor
    cdef public bint looking
    cdef public bint parked
    cdef public bint browses
    cdef public int priority
    cdef public int family
    cdef public unsigned int publisher
    cdef public dict arguments

    cpdef bint can(self) except -1
    cpdef int accepts(self, Message message) except -1
    cpdef deliver(self, Message message)
    cdef int put(
        self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t address_len, Py_ssize_t end,
        int redelivered,
    ) except -1
    cpdef bint lags(self) except -1
    cpdef bint pours(self) except -1
    cdef int put_record(
        self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t address_len, Py_ssize_t end,
        unsigned long long offset, unsigned long long arrived_ms,
    ) except -1
    cpdef hold(self, unsigned long long position)
    cpdef cancelled(self)
    cpdef looked(self)
    cpdef ended(self)
    cpdef failed(self, object error)

cdef class Cursor:
    cdef public Consumer consumer
    cdef public bint browses
    cdef list seen
    cdef list ahead
    cdef long long looks

cdef class ServedMessages(ReadyMessages):
    cdef public bint is_stream
    cdef public unsigned long long published
    cdef public unsigned long long delivered
    cdef public unsigned long long acknowledged
    cdef public long long used_ms
    cdef public unsigned long long reserved
    cdef public unsigned long long reserving
    cdef public unsigned long long reserving_at
    cdef public list consumers
    cdef public list active
    cdef Py_ssize_t turn
    cdef public bint ranked
    cdef public int selective
    cdef public Consumer exclusive_consumer
    cdef public bint traced
    cdef public bint exclusive_only
    cdef public bint browse_only
    cdef public bint single_active
    cdef public Consumer single_active_consumer
    cdef public object backoff
    cdef public dict waiters
    cdef public long long pace_above
    cdef public bint stopped

    cpdef Consumer ready_consumer(self)
    cpdef bint has_ready_consumer(self) except -1
    cpdef bint would_reject(self, unsigned int body_size) except -1
    @cython.locals(consumer=Consumer)
    cpdef int enqueue(self, Message message) except -1
    cdef reject_overflow(self, Message message)
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    cpdef dispatch_arrival(self, Consumer consumer, Message message)
    cdef join(self, Consumer consumer)
    @cython.locals(at=Py_ssize_t, other=Consumer)
    cdef activate(self, Consumer consumer)
    cpdef unpark(self, Consumer consumer)
    cdef part(self, Consumer consumer)
    @cython.locals(active=list, n=Py_ssize_t, consumer=Consumer)
    cdef Consumer pick(self)
    @cython.locals(active=list, last=Py_ssize_t, consumer=Consumer, first=Consumer)
    cdef Consumer pick_by_rank(self)
    @cython.locals(consumer=Consumer, message=Message)
    cpdef drain(self)
    cdef int drain_selective(self) except -1
    cdef show_all(self)
    cpdef dispatch(self, Consumer consumer, Message message)
    @cython.locals(message=Message)
    cpdef Message get(self, Consumer getter)
    cdef int reserve(self, unsigned long long seq) except -1
    @cython.locals(reserved=cython.ulonglong, durable_at=cython.ulonglong)
    cdef reserve_for(self, Consumer consumer, Message message)
    cpdef unsigned long long note(
        self, Message message, unsigned int count, unsigned long long when_ms
    ) except? 0
    cpdef bint acquire(self, Message message, Consumer consumer) except -1
    cpdef int settle(self, Message message) except -1
    cdef unassign(self, Message message)
    cpdef requeue(self, Message message)
    cpdef give_up(self, Message message)
    cpdef release(self, Message message)
    cdef requeue_or_delay(self, Message message, bint waits)
    cpdef requeue_now(self, Message message)
    cpdef redeliver(self, Message message)
    cpdef discard(self, Message message)
    cpdef unconvertible(self, Message message, Consumer consumer, str text)
    cpdef add_waiter(self, object publisher)
    cpdef drop_waiter(self, object publisher)
    cpdef release_waiters(self)
