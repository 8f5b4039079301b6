# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.message cimport (
    C_KIND_MASK, C_LARGE, C_PAGED, C_PERSISTENT, C_REDELIVERED, Message, new_message,
)
from headrace.store.segment.record cimport C_MESSAGE, C_MESSAGE_HEAD, C_RETURNED
from headrace.store.segment.segment cimport Segment
from headrace.wire.memory cimport copy, get16, get32, get64, put32, put64

ctypedef unsigned char u8
ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef enum:
    C_ROW = 56
    C_AT_POSITION = 40
    C_AT_QUEUE = 48
    C_AT_UNSETTLED = 52

@cython.final
cdef class Rows:
    cdef public u64 last_seq
    cdef bytearray rows
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef bytearray seq_index
    cdef readonly Py_ssize_t seq_index_count
    cdef Py_ssize_t seq_index_capacity
    cdef u64 seq_index_last
    cdef Py_ssize_t last_hit
    cdef dict unordered
    cdef dict returned_rows
    cdef dict queues
    cdef dict settled
    cdef dict drops

    @cython.locals(
        seq=u64, count=u32, i=u32, row=Py_ssize_t, base=Py_ssize_t, position=u64,
        earlier=Py_ssize_t,
    )
    cdef add(self, Segment segment, bytearray buffer, Py_ssize_t start, u32 type, u32 offset)
    cdef int add_returned(self, u32 queue_id, u64 seq, Py_ssize_t row) except -1
    @cython.locals(row=Py_ssize_t, base=Py_ssize_t, unsettled=u32)
    cpdef settle(self, u32 queue_id, u64 seq, u32 count)
    cdef settle_one_of_several(self, Py_ssize_t row, u32 unsettled, u32 queue_id)
    cpdef settle_all(self, Py_ssize_t row)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cpdef Py_ssize_t find(self, u64 seq) except -2
    @cython.locals(row=Py_ssize_t)
    cpdef Py_ssize_t find_in_queue(self, u32 queue_id, u64 seq) except -2
    cpdef u64 position(self, Py_ssize_t row) except? 0
    cpdef Py_ssize_t only_queue(self, Py_ssize_t row) except -2
    cpdef list unsettled_ids(self, Py_ssize_t row)
    @cython.locals(
        number=u32, segment=Segment, row=Py_ssize_t, base=Py_ssize_t, unsettled=u32, position=u64, i=u32
    )
    cpdef count_unsettled(self, dict segments)
    cpdef u64 arrived_ms(self, Py_ssize_t row) except? 0
    @cython.locals(rows="u8*", base=Py_ssize_t, message=Message, flags=u32)
    cdef Message make_message(self, Py_ssize_t row)
