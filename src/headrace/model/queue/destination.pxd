# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.counters cimport C_MESSAGE_OVERHEAD, C_PAGED_WEIGHT, Counters
from headrace.model.message cimport C_PAGED, Message
from headrace.model.ports cimport Store
from headrace.model.queue.ready_list cimport Cursor, ReadyList
from headrace.model.tallies cimport QueueTally

cdef ReadyList NOTHING_READY

cdef enum:
    C_NEVER = 0
    C_ACCEPTED = 1
    C_NO_ROOM = 2

cdef class Consumer:
    cdef public Destination queue
    cdef public str tag
    cdef public bint no_ack
    cdef public bint exclusive
    cdef public bint no_local
    cdef public bint is_selective
    cdef public bint is_filtering
    cdef public bint auto_close
    cdef public object selector
    cdef public Cursor cursor
    cdef public bint is_scanning
    cdef public bint is_parked
    cdef public bint is_browser
    cdef public int priority
    cdef public int content_kind
    cdef public unsigned int publisher
    cdef public dict arguments

    cpdef bint has_room(self) except -1
    cpdef int evaluate(self, Message message) except -1
    cpdef deliver(self, Message message)
    cdef int put(
        self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t address_len, Py_ssize_t end,
        int redelivered,
    ) except -1
    cpdef bint lags(self) except -1
    cpdef bint accepts_records(self) except -1
    cdef int put_record(
        self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t address_len, Py_ssize_t end,
        unsigned long long offset, unsigned long long arrived_ms,
    ) except -1
    cpdef on_redelivery(self)
    cpdef delay_deliveries(self, unsigned long long position)
    cpdef on_cancel(self)
    cpdef on_scan_end(self)
    cpdef on_queue_end(self)
    cpdef on_failure(self, object error)

@cython.final
cdef class ConsumerRound:
    cdef Counters counters
    cdef long long stalled_since_ms
    cdef long long stalled_total_ms
    cdef public list consumers
    cdef public list active
    cdef Py_ssize_t next_index
    cdef bint has_priorities
    cdef public int selective_count
    cdef public Consumer single_active_consumer

    cdef int add(self, Consumer consumer, bint single_active) except -1
    @cython.locals(index=Py_ssize_t)
    cdef activate(self, Consumer consumer, bint single_active)
    cdef int deactivate(self, Consumer consumer) except -1
    @cython.locals(index=Py_ssize_t)
    cdef Consumer remove(self, Consumer consumer)
    cpdef long long total_wait_ms(self) except? 0
    cdef int clear(self) except -1
    @cython.locals(active=list, n=Py_ssize_t, consumer=Consumer)
    cdef Consumer pick(self)
    @cython.locals(active=list, level_end=Py_ssize_t, consumer=Consumer)
    cdef Consumer pick_by_priority(self)
    @cython.locals(index=Py_ssize_t)
    cdef int skip(self, Consumer consumer) except -1

cdef class Destination:
    cdef public str name
    cdef public Store store
    cdef public Counters counters
    cdef public object vhost
    cdef public unsigned int id
    cdef public bytes id_bytes
    cdef public bint durable
    cdef public bint auto_delete
    cdef public object exclusive_owner
    cdef public dict arguments
    cdef public bint is_hidden
    cdef public bint is_stream
    cdef public str access_name
    cdef public long long expires_ms
    cdef public long long used_ms
    cdef public bint deleted
    cdef public ReadyList ready
    cdef public ConsumerRound round
    cdef public Consumer exclusive_consumer
    cdef public bint exclusive_only
    cdef public bint browse_only
    cdef public bint single_active
    cdef public bint reports_deliveries
    cdef public bint will_drain
    cdef public long long pace_above
    cdef public bint publishers_stopped
    cdef public dict waiters
    cdef public QueueTally tally
    cdef public object sampler_state
    cdef public long long unacked_count
    cdef public long long unacked_bytes

    cpdef Consumer ready_consumer(self)
    cpdef bint has_ready_consumer(self) except -1
    cpdef bint would_reject(self, unsigned int body_size) except -1
    cpdef int enqueue(self, Message message) except -1
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    cpdef dispatch_arrival(self, Consumer consumer, Message message)
    cpdef restore(self, Message message, long long arrived_ms)
    cpdef add_consumer(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)
    cpdef start_filtering(self, Consumer consumer)
    cpdef set_selective(self, Consumer consumer, bint selective)
    cpdef show_message(self, Consumer consumer, Message message)
    cdef join_round(self, Consumer consumer)
    cdef activate(self, Consumer consumer)
    cdef deactivate(self, Consumer consumer)
    cdef leave_round(self, Consumer consumer)
    cpdef unpark(self, Consumer consumer)
    cpdef drain(self)
    cpdef wake(self)
    cpdef Message get(self, Consumer getter)
    cpdef bint acquire(self, Message message, Consumer consumer) except -1
    cpdef int settle(self, Message message) except -1
    cpdef requeue(self, Message message)
    cpdef release(self, Message message)
    cpdef discard(self, Message message)
    cpdef redeliver(self, Message message)
    cpdef on_unconvertible(self, Message message, Consumer consumer, str text)
    cpdef remove(self, Message message)
    cdef long long weight(self, Message message) except -1
    cpdef add_waiter(self, object publisher)
    cpdef remove_waiter(self, object publisher)
    cpdef long long message_count(self) except -1
    cpdef Py_ssize_t consumer_count(self) except -1
    cpdef long long purge(self) except -1
    cpdef long long destroy(self) except -1
