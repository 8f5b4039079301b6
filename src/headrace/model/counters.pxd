# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_PAGED, Message
from headrace.model.tallies cimport QueueTally, SizeHistogram

cdef enum:
    C_MESSAGE_OVERHEAD = 200
    C_PAGED_WEIGHT = 100
    C_SMALLEST_MAX = 100

@cython.final
cdef class Counters:
    cdef public long long now_ms
    cdef public object clock
    cdef public unsigned long long next_seq
    cdef public long long memory_used
    cdef public long long memory_max
    cdef public unsigned long long generation
    cdef public list to_drain
    cdef public unsigned long long published
    cdef public unsigned long long routed
    cdef public unsigned long long published_bytes
    cdef public SizeHistogram sizes
    cdef public QueueTally queues_ended
    cdef public dict channels_ended
    cdef public dict deaths
    cdef public list deleted_sampler_states
    cdef public long long letters_ms
    cdef public long long letters_left
    cdef public object arrivals

    cpdef int count_publish(self, unsigned long long size) except -1
    cpdef int begin_letters(self, long long now_ms) except -1
    cpdef bint is_memory_short(self) except -1

cpdef long long memory_weight(Message message) except -1
