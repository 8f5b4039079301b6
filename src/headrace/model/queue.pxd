# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_PAGED, C_REDELIVERED, C_SCRATCH, Message
from headrace.model.ports cimport Store
from headrace.model.ring cimport Ring
from headrace.model.tally cimport C_MESSAGE_OVERHEAD, C_PAGED_WEIGHT, Tally

cdef long long RESIDENT_MIN
cdef long long RESIDENT_OCTETS
cdef unsigned long long RESERVATION
cdef long long SHELLS_MIN
cdef long long LOOKS_MAX
cdef long long PAGED_LOOKS
cdef long long LOOK_PAUSE_MS
cdef long long EXPIRE_MAX
cdef long long DEAD_LETTERS_MAX
cdef int DEFAULT_HIGH_PRIORITY

cdef class Consumer:
    cdef public Queue queue
    cdef public str tag
    cdef public bint no_ack
    cdef public bint exclusive
    cdef public bint no_local
    cdef public bint selective
    cdef public bint picky
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

@cython.final
cdef class Cursor:
    cdef public Consumer consumer
    cdef public bint browses
    cdef list seen
    cdef list ahead
    cdef long long looks

cdef class Queue:
    cdef public str name
    cdef public Store store
    cdef public Tally tally
    cdef public object vhost
    cdef public unsigned int id
    cdef public bytes id_bytes
    cdef public bint durable
    cdef public bint auto_delete
    cdef public bint deleted
    cdef public str realm
    cdef public bint is_stream
    cdef public bint is_hidden
    cdef public str access_name
    cdef public bint limited
    cdef public bint ranked
    cdef public object exclusive_owner
    cdef public dict arguments
    cdef public long long max_length
    cdef public long long max_length_bytes
    cdef public long long message_ttl_ms
    cdef public long long expires_ms
    cdef public int overflow
    cdef public int max_priority
    cdef public int priority_base
    cdef public str dead_letter_exchange
    cdef public str dead_letter_routing_key
    cdef public str alternate_exchange
    cdef public bint insists
    cdef public long long ready_count
    cdef public long long ready_bytes
    cdef public long long unacked_count
    cdef public long long held_count
    cdef public unsigned long long published
    cdef public unsigned long long delivered
    cdef public unsigned long long acknowledged
    cdef public long long used_ms
    cdef public unsigned long long reserved
    cdef public unsigned long long reserving
    cdef public unsigned long long reserving_at
    cdef public long long shells
    cdef Ring ring
    cdef list rings
    cdef list returned
    cdef list expiring
    cdef public list consumers
    cdef public list active
    cdef public list browsers
    cdef list seekers
    cdef list resting
    cdef public int closing
    cdef public bint waking
    cdef Py_ssize_t turn
    cdef public int selective
    cdef public Consumer exclusive_consumer
    cdef public bint lone
    cdef public bint shown_only
    cdef public bint single
    cdef public bint observed
    cdef public Consumer chosen
    cdef public int delivery_limit
    cdef public object backoff
    cdef public dict waiters
    cdef public long long pace_above
    cdef public bint stopped
    cdef public object guard
    cdef public object on_deadline
    cdef public dict lanes
    cdef public object view

    cpdef Consumer taker(self)
    cpdef bint takes_at_once(self) except -1
    cpdef bint will_refuse(self, unsigned int body_size) except -1
    @cython.locals(held=cython.longlong)
    cpdef bint refuses(self, unsigned int body_size) except -1
    @cython.locals(consumer=Consumer)
    cpdef int offer(self, Message message) except -1
    cdef turn_away(self, Message message)
    cpdef admit(self, Message message, bint promised=*)
    @cython.locals(ring=Ring, last=Message)
    cdef bint is_newest(self, Message message) except -1
    cpdef give(self, Consumer consumer, Message message)
    @cython.locals(message=Message)
    cpdef Message get(self, Consumer getter)
    @cython.locals(deadline=cython.longlong)
    cpdef limit_life(self, Message message, long long arrived_ms)
    @cython.locals(found=list, message=Message)
    cpdef unsigned long long limit_lives(
        self, unsigned long long first, unsigned long long last, long long arrived_ms,
        long long octets_max,
    ) except? 0
    cpdef restore(self, Message message, long long arrived_ms)
    cpdef bint restore_held(self, Message message) except -1
    @cython.locals(level=cython.int, ring=Ring)
    cdef int push(self, Message message) except -1
    cdef int page_out(self, Message message) except -1
    cdef long long weight(self, Message message) except -1
    cdef int level(self, int priority) except -1
    cdef keep_limits(self, Message message)
    cdef bint too_long(self, int more, long long octets) except -1
    @cython.locals(message=Message)
    cdef shorten(self)
    @cython.locals(message=Message, ring=Ring)
    cdef Message next_ready(self)
    @cython.locals(message=Message, first=Message, ring=Ring, level=cython.int, back=cython.int, seq=cython.ulonglong)
    cdef Message next_by_rank(self)
    @cython.locals(message=Message)
    cpdef Message take(self)
    @cython.locals(before=cython.longlong)
    cdef bint bring(self, Message message) except -1
    @cython.locals(active=list, n=Py_ssize_t, consumer=Consumer)
    cdef Consumer pick(self)
    @cython.locals(active=list, last=Py_ssize_t, consumer=Consumer, first=Consumer)
    cdef Consumer pick_by_rank(self)
    cpdef hand(self, Consumer consumer, Message message)
    cdef int reserve(self, unsigned long long seq) except -1
    cdef reserve_for(self, Consumer consumer, unsigned long long seq)
    @cython.locals(consumer=Consumer, message=Message)
    cpdef drain(self)
    @cython.locals(consumer=Consumer, message=Message)
    cdef int drain_selective(self) except -1
    @cython.locals(other=Consumer, verdict=cython.int)
    cdef Consumer choose(self, Consumer consumer, Message message)
    @cython.locals(cursor=Cursor, message=Message, paged=cython.bint, verdict=cython.int)
    cdef Message seek(self, Consumer consumer)
    cdef int judge(self, Consumer consumer, Message message) except -1
    cdef bint selects(self, object selector, Message message) except -1
    @cython.locals(level=cython.int)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    @cython.locals(consumer=Consumer)
    cdef rest(self, Cursor cursor, bint complete)
    @cython.locals(consumer=Consumer)
    cdef end_closing(self)
    cpdef int settle(self, Message message) except -1
    cpdef requeue(self, Message message)
    cpdef release(self, Message message)
    cpdef come_back(self, Message message)
    cpdef redeliver(self, Message message)
    @cython.locals(entry=tuple)
    cdef put_back(self, Message message)
    cpdef discard(self, Message message)
    cpdef unconvertible(self, Message message, Consumer consumer, str text)
    cdef die(self, Message message, str reason)
    cpdef bint retry_letter(self, Message message, str reason) except -1
    @cython.locals(arrived=cython.bint)
    cdef bint dead_letter(self, Message message, str reason) except -1
    cpdef leave(self, Message message)
    cpdef add_browser(self, Consumer consumer)
    cdef Cursor new_cursor(self, Consumer consumer)
    cpdef make_picky(self, Consumer consumer)
    @cython.locals(cursor=Cursor)
    cpdef browse_from(self, Consumer consumer, unsigned long long position)
    @cython.locals(c=Cursor)
    cpdef remove_browser(self, Consumer consumer)
    cpdef wake(self)
    @cython.locals(cursor=Cursor)
    cdef look_back(self, tuple entry)
    cdef foresee(self, Cursor cursor, tuple entry)
    @cython.locals(cursor=Cursor)
    cdef show_all(self)
    @cython.locals(consumer=Consumer, message=Message, paged=cython.bint, verdict=cython.int)
    cdef show(self, Cursor cursor)
    cpdef present(self, Consumer consumer, Message message)
    @cython.locals(ahead=list, level=cython.int, seen=cython.ulonglong, found=Message, ring=Ring,
                   at=Py_ssize_t, message=Message, back=cython.int, seq=cython.ulonglong,
                   ready=cython.bint, fresh=cython.bint)
    cdef Message following(self, Cursor cursor)
    @cython.locals(found=list, limit=cython.ulonglong, level=Py_ssize_t, ring=Ring,
                   octets=cython.longlong, at=Py_ssize_t, message=Message)
    cpdef list peek(
        self, unsigned long long first, unsigned long long last, long long octets_max,
        list returned,
    )
    cpdef list returned_within(self, unsigned long long first, unsigned long long last)
    @cython.locals(first=cython.ulonglong, ring=Ring, seq=cython.ulonglong)
    cpdef unsigned long long position_of_first(self) except? 0
    @cython.locals(ring=Ring, step=Py_ssize_t, at=Py_ssize_t)
    cpdef list positions(self, Py_ssize_t parts)
    cpdef bint acquire(self, Message message, Consumer consumer) except -1
    @cython.locals(level=cython.int, ring=Ring, at=Py_ssize_t)
    cdef bint is_shell(self, Message message) except -1
    cpdef watch(self, Message message)
    @cython.locals(message=Message, deadline=cython.longlong, gone=cython.bint,
                   budget=cython.longlong, following=cython.longlong)
    cpdef long long expire(self, long long now_ms) except -1
    cdef sweep(self)
    @cython.locals(message=Message, fresh=Ring)
    cdef Ring swept(self, Ring ring)
    cpdef long long message_count(self) except -1
    @cython.locals(lane=Queue, count=cython.longlong)
    cpdef long long lanes_ready(self) except -1
    @cython.locals(lane=Queue, count=Py_ssize_t)
    cpdef Py_ssize_t consumer_count(self) except -1
    cpdef add_consumer(self, Consumer consumer)
    @cython.locals(at=Py_ssize_t, other=Consumer)
    cdef enlist(self, Consumer consumer)
    cpdef unpark(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)
    cpdef add_waiter(self, object publisher)
    cpdef drop_waiter(self, object publisher)
    cpdef release_waiters(self)
    @cython.locals(lane=Queue, count=cython.longlong, held=cython.longlong, dropped=cython.bint)
    cpdef long long purge(self) except -1
    @cython.locals(message=Message)
    cdef orphan_ready(self)
    @cython.locals(message=Message)
    cdef int forget_ready(self, bint settle) except -1
    @cython.locals(message=Message, ring=Ring)
    cpdef list counts(self)
    @cython.locals(consumers=list, consumer=Consumer, cursor=Cursor, lane=Queue)
    cpdef long long destroy(self) except -1
