# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.store.segment.record cimport residue
from headrace.wire.memory cimport get32, get64, put32, put64

ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef enum:
    C_SEVERAL = 0x80000000

cdef int MASK_BITS

@cython.final
cdef class Segment:
    cdef public u32 number
    cdef public u64 seed
    cdef public u64 size
    cdef public u64 end
    cdef public u64 written
    cdef public bytearray heads
    cdef public u32 capacity
    cdef public u32 count
    cdef public u32 live
    cdef public bytearray masks
    cdef public dict routes
    cdef public list bits
    cdef public dict partial
    cdef public bytearray forward
    cdef public int handle
    cdef public u64 allocated
    cdef public bint is_suspect
    cdef public bint is_sealed
    cdef public bint is_moved
    cdef public bint is_retired
    cdef public dict reserved
    cdef public list marks
    cdef public list shared_transactions
    cdef public set facts
    cdef public u64 fact_bytes
    cdef public dict defined
    cdef public object counts
    cdef public object count_positions
    cdef public Py_ssize_t counts_room

    @cython.locals(i=u32)
    cpdef u32 add_message(self, u64 offset, u32 unsettled, bytes ids) except? 0xFFFFFFFF
    cpdef set_queues(self, u32 i, u32 unsettled, bytes ids)
    cpdef u32 offset(self, u32 i) except? 0xFFFFFFFF
    cpdef u32 unsettled_queues(self, u32 i) except? 0xFFFFFFFF
    @cython.locals(unsettled=u32)
    cpdef int settle(self, u32 i, u32 queue_id) except -2
    @cython.locals(bit=cython.int, mask=u64, flag=u64)
    cdef int settle_one(self, u32 i, u32 queue_id) except -2
    @cython.locals(unsettled=u32, bit=cython.int)
    cpdef bint is_unsettled(self, u32 i, u32 queue_id) except -1
    @cython.locals(mask=u64)
    cpdef bytes unsettled_ids(self, u32 i, bytes ids)
