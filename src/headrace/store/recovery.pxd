# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.message cimport (
    C_KIND_MASK, C_LARGE, C_PAGED, C_PERSISTENT, C_REDELIVERED, Message, new_message,
)
from headrace.store.record cimport (
    C_BEGIN, C_CLEAN, C_COMMIT, C_COUNTED, C_DECIDED, C_DROPPED, C_FACT, C_GROUP, C_MARKED, C_MESSAGE,
    C_MESSAGE_HEAD, C_MOVED, C_PREPARED, C_RESERVED, C_RETURNED, C_SEALED, C_SETTLED, intact,
    next_intact,
)
from headrace.store.segment cimport Segment
from headrace.wire.memory cimport copy, get16, get32, get64, put32, put64

ctypedef unsigned char u8
ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef enum:
    C_ROW = 56
    C_AT_POSITION = 40
    C_AT_QUEUE = 48
    C_AT_OWED = 52

cdef class Recovery:
    cdef public object disk
    cdef public str directory
    cdef public str name
    cdef public u64 secret
    cdef public u64 last_seq
    cdef public bint clean
    cdef public u32 next_number
    cdef public list segments
    cdef public list spares
    cdef public dict reserved
    cdef public set marks
    cdef public bytearray rows
    cdef public Py_ssize_t row_count
    cdef public Py_ssize_t row_room
    cdef public bytearray ladder
    cdef public Py_ssize_t ladder_count
    cdef public Py_ssize_t ladder_room
    cdef public u64 ladder_top
    cdef public Py_ssize_t hint
    cdef public dict strays
    cdef public dict returned
    cdef public dict queues
    cdef public dict settled
    cdef public dict drops
    cdef public object deferred
    cdef public object begun
    cdef public int quarantined
    cdef public dict prepared
    cdef public set held
    cdef public set locked
    cdef public set shared
    cdef public object facts
    cdef public object counts

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, length=u32, type=u32, following=Py_ssize_t)
    cpdef Py_ssize_t scan(self, Segment segment, bytearray d, Py_ssize_t size, bint last) except -1
    @cython.locals(
        seq=u64, count=u32, i=u32, row=Py_ssize_t, base=Py_ssize_t, position=u64,
        earlier=Py_ssize_t,
    )
    cpdef message(self, Segment segment, bytearray d, Py_ssize_t at, u32 type)
    @cython.locals(lo=Py_ssize_t, hi=Py_ssize_t, middle=Py_ssize_t)
    cpdef Py_ssize_t find(self, u64 seq) except -2
    cpdef take_back(self, u32 queue_id, u64 seq, Py_ssize_t row)
    @cython.locals(row=Py_ssize_t)
    cpdef Py_ssize_t find_of(self, u32 queue_id, u64 seq) except -2
    @cython.locals(row=Py_ssize_t, base=Py_ssize_t, owed=u32)
    cpdef settle_run(self, u32 queue_id, u64 seq, u32 count)
    cpdef settle_one_of_several(self, Py_ssize_t row, u32 owed, u32 queue_id)
    @cython.locals(
        number=u32, segment=Segment, row=Py_ssize_t, base=Py_ssize_t, owed=u32, position=u64, i=u32
    )
    cpdef count_owed(self)
    @cython.locals(rows="u8*", message=Message, flags=u32)
    cpdef Message make(self, Py_ssize_t base, u32 queue_id)
