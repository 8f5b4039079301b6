# SPDX-License-Identifier: Apache-2.0
import cython

@cython.final
cdef class QueueTally:
    cdef public unsigned long long publish
    cdef public unsigned long long deliver
    cdef public unsigned long long deliver_no_ack
    cdef public unsigned long long get
    cdef public unsigned long long get_no_ack
    cdef public unsigned long long redeliver
    cdef public unsigned long long ack
    cdef public unsigned long long get_empty
    cdef public unsigned long long dead_expired
    cdef public unsigned long long dead_rejected
    cdef public unsigned long long dead_maxlen
    cdef public unsigned long long dead_delivery_limit

    cpdef add(self, QueueTally other)
    cpdef died(self, str reason)
    cpdef unsigned long long delivered(self) except? 0
    cpdef tuple values(self)

@cython.final
cdef class ExchangeTally:
    cdef public unsigned long long publish_in
    cdef public unsigned long long publish_out
    cdef public unsigned long long return_unroutable
    cdef public unsigned long long drop_unroutable

    cpdef tuple values(self)

@cython.final
cdef class ChannelTally:
    cdef public unsigned long long publish
    cdef public unsigned long long publish_confirm
    cdef public unsigned long long confirm
    cdef public unsigned long long return_unroutable
    cdef public unsigned long long drop_unroutable
    cdef public unsigned long long deliver
    cdef public unsigned long long deliver_no_ack
    cdef public unsigned long long get
    cdef public unsigned long long get_no_ack
    cdef public unsigned long long redeliver
    cdef public unsigned long long ack
    cdef public unsigned long long get_empty
    cdef public bint ended

    cpdef add(self, ChannelTally other)
    cpdef tuple values(self)

@cython.final
cdef class Sizes:
    cdef public unsigned long long octets
    cdef public unsigned long long up_to_1k
    cdef public unsigned long long up_to_10k
    cdef public unsigned long long up_to_100k
    cdef public unsigned long long up_to_1m
    cdef public unsigned long long up_to_10m
    cdef public unsigned long long up_to_50m
    cdef public unsigned long long up_to_100m
    cdef public unsigned long long larger

    cdef int note(self, unsigned long long size) except -1
    cpdef tuple counts(self, unsigned long long published)
