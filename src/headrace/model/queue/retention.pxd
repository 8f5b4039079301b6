# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_PAGED, C_SCRATCH, Message
from headrace.model.queue.ready_list cimport STALE_MIN, Places
from headrace.model.ports cimport Store
from headrace.model.counters cimport C_MESSAGE_OVERHEAD, C_PAGED_WEIGHT, Counters

cdef long long RESIDENT_MIN
cdef long long RESIDENT_OCTETS
cdef long long EXPIRE_MAX

cdef class ReadyMessages(Places):
    cdef public str name
    cdef public Store store
    cdef public object vhost
    cdef public unsigned int id
    cdef public bytes id_bytes
    cdef public bint durable
    cdef public bint deleted
    cdef public bint ending
    cdef public long long max_length
    cdef public long long max_length_bytes
    cdef public int overflow
    cdef public bint limited
    cdef public bint counts_unacked
    cdef public long long message_ttl_ms
    cdef public int delivery_limit
    cdef public str dead_letter_exchange
    cdef public str dead_letter_routing_key
    cdef public str alternate_exchange
    cdef public bint dead_letter_at_least_once
    cdef public object guard
    cdef public long long unacked_count
    cdef public long long unacked_bytes
    cdef public long long pending_count
    cdef list expiring
    cdef public object on_deadline

    @cython.locals(held=cython.longlong)
    cpdef bint is_full_for(self, unsigned int body_size) except -1
    cpdef long long length(self) except -1
    cpdef long long octets(self) except -1
    cdef enforce_limits(self, Message message)
    cdef bint exceeds_limits(self, int more, long long octets) except -1
    @cython.locals(message=Message)
    cdef drop_head(self)
    cdef long long weight(self, Message message) except -1
    cdef relieve(self, Message message)
    @cython.locals(gained=cython.longlong)
    cdef int page_out(self, Message message) except -1
    @cython.locals(deadline=cython.longlong)
    cpdef set_deadline(self, Message message, long long arrived_ms)
    @cython.locals(found=list, message=Message)
    cpdef unsigned long long set_deadlines(
        self, unsigned long long first, unsigned long long last, long long arrived_ms,
        long long octets_max,
    ) except? 0
    cpdef schedule_expiry(self, Message message)
    @cython.locals(message=Message, listed=dict, entry=tuple, known=tuple)
    cdef sweep_deadlines(self)
    @cython.locals(message=Message, deadline=cython.longlong, gone=cython.bint,
                   budget=cython.longlong, following=cython.longlong, letters=cython.bint,
                   spent=cython.bint, counters=Counters)
    cpdef long long expire(self, long long now_ms) except -1
    cpdef restore(self, Message message, long long arrived_ms)
    cpdef bint restore_unacked(self, Message message) except -1
    @cython.locals(message=Message)
    cpdef Message dequeue(self)
    @cython.locals(before=cython.longlong)
    cdef bint load(self, Message message) except -1
    cdef dead_letter(self, Message message, str reason)
    cpdef bint retry_dead_letter(self, Message message, str reason) except -1
    @cython.locals(arrived=cython.bint, wanted=cython.bint)
    cdef bint publish_dead_letter(self, Message message, str reason) except -1
    cpdef remove(self, Message message)
    @cython.locals(message=Message)
    cdef int forget_ready(self, bint settle) except -1
    @cython.locals(message=Message)
    @cython.locals(message=Message, gathers=cython.bint)
    cpdef int orphan_some(self, int most) except -1
