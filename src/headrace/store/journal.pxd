# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.message cimport (
    C_KIND_MASK, C_LARGE, C_PAGED, C_PERSISTENT, C_REDELIVERED, C_SCRATCH, Message,
)
from headrace.model.ports cimport Store
from headrace.store.record cimport (
    C_BEGIN, C_CLEAN, C_COMMIT, C_DECIDED, C_DROPPED, C_FACT, C_GROUP, C_HEAD, C_MARKED, C_MESSAGE,
    C_MESSAGE_HEAD, C_MOVED, C_PREPARED, C_RESERVED, C_RETURNED, C_SEALED, C_SETTLED,
)
from headrace.store.counts cimport Counts
from headrace.store.record cimport first_word, intact, residue, seal, seal_around
from headrace.store.scratch cimport Scratch
from headrace.store.segment cimport Segment
from headrace.wire.memory cimport copy, cut, get32, get64, put16, put32, put64

ctypedef unsigned char u8
ctypedef unsigned int u32
ctypedef unsigned long long u64
ctypedef long long i64

cdef u64 INDEX_MASK

cdef class Journal(Store):
    cdef public str directory
    cdef public str name
    cdef public object disk
    cdef public u64 segment_size
    cdef public u64 secret
    cdef public bint clean
    cdef public dict segments
    cdef public Segment segment
    cdef public object order
    cdef public object retiring
    cdef public list spares
    cdef public object open_handles
    cdef public dict reserved
    cdef public dict prepared
    cdef public object fact_homes
    cdef public Counts counts
    cdef public bytearray buffer
    cdef public Py_ssize_t capacity
    cdef public object spare_buffer
    cdef public Py_ssize_t at
    cdef public Py_ssize_t floor
    cdef public list pieces
    cdef public Py_ssize_t piece_lo
    cdef public u64 piece_offset
    cdef public u64 offset
    cdef public u64 group_number
    cdef public object busy
    cdef public u32 run_queue
    cdef public u64 run_seq
    cdef public u32 run_count
    cdef public bytearray runs
    cdef public Py_ssize_t runs_at
    cdef public bint emptied
    cdef public object slabs
    cdef public u64 next_transaction
    cdef public u64 transaction
    cdef public bint shared
    cdef public bint closed
    cdef public bint recovered
    cdef public list dirty_streams
    cdef public list streams
    cdef public Scratch scratch
    cdef public object compactor
    cdef public object writer

    @cython.locals(more=Py_ssize_t)
    cpdef reserve(self, u64 size)
    @cython.locals(
        q=Py_ssize_t, n=Py_ssize_t, length=u32, size=u64, b="u8*", at=Py_ssize_t, segment=Segment,
        i=u32, position=u64,
    )
    cdef u64 publish(
        self, const u8* d, Py_ssize_t lo, Py_ssize_t hi, u32 address_len, u32 flags, u32 priority,
        i64 deadline_ms, i64 arrived_ms, u64 seq, u32 body_size, bytes queue_ids,
    ) except? 0
    @cython.locals(head=bytearray, data=bytes, position=u64, paged=bint, flags=u32)
    cpdef u64 publish_message(self, Message message, i64 arrived_ms, bytes queue_ids) except? 0
    @cython.locals(
        n=Py_ssize_t, length=u32, size=u64, b="u8*", at=Py_ssize_t, segment=Segment, i=u32,
        position=u64,
    )
    cpdef u64 give_back(self, Message message, i64 arrived_ms, bytes queue_id) except? 0
    @cython.locals(
        length=u64, size=u64, own_size=Py_ssize_t, b="u8*", at=Py_ssize_t, i=u32, position=u64
    )
    cpdef u64 append_large(self, u32 type, bytes own, list parts, bytes queue_ids) except? 0
    @cython.locals(n=Py_ssize_t, length=u32, size=u64, b="u8*", at=Py_ssize_t)
    cpdef append(self, u32 type, bytes payload)
    @cython.locals(q=Py_ssize_t, i=u32, position=u64, count=u32, length=Py_ssize_t)
    cpdef u64 append_copy(self, bytes record, Py_ssize_t own, bytes queue_ids) except? 0
    cpdef end_piece(self)
    @cython.locals(old=Segment, b="u8*")
    cpdef roll(self, u64 size)
    @cython.locals(segment=Segment, first=bytes)
    cpdef begin_segment(self, u32 number, u64 size)
    cpdef settle(self, u32 queue_id, u64 seq, u64 position)
    @cython.locals(message=Message)
    cpdef settle_each(self, u32 queue_id, list messages)
    @cython.locals(number=u32, i=u32, segment=Segment, outcome=cython.int)
    cpdef int forget(self, u32 queue_id, u64 position) except -2
    @cython.locals(outcome=cython.int)
    cpdef int forget_moved(
        self, Segment segment, bytearray forward, u32 queue_id, u32 i
    ) except -2
    cpdef end_run(self)
    cpdef flush_runs(self)
    cpdef flush_settled(self)
    cpdef u64 counted(
        self, u32 queue_id, u64 seq, u64 position, u32 count, u64 when_ms
    ) except? 0
    cpdef bint owes(self, u32 queue_id, u64 position) except -1
    cpdef delivered(self, u32 queue_id, u64 seq)
    cpdef drop(self, u32 queue_id, u64 upto_seq)
    cpdef begin(self)
    @cython.locals(number=u64)
    cpdef commit(self)
    cpdef vouch(self, number)
    cpdef prepare(self, bytes xid, list publishes, list settles)
    cpdef keep(self, prepared)
    cpdef decide(self, bytes xid, int status, long long when_ms)
    cpdef fact(self, bytes key, object value)
    cpdef kick(self)
    cpdef hand_over(self)
    @cython.locals(before=u64)
    cpdef begin_group(self)
    cpdef bint page_out(self, Message message) except -1
    cpdef release(self, Message message)
    cpdef load(self, Message message)
    @cython.locals(i=u32, segment=Segment)
    cpdef whereabouts(self, u64 position)
    @cython.locals(i=u32, segment=Segment)
    cpdef find(self, u64 position)
    @cython.locals(segment=Segment, offset=u64, at=Py_ssize_t, q=Py_ssize_t, n=Py_ssize_t, lo=Py_ssize_t)
    cpdef load_record(self, Message message)
    @cython.locals(segment=Segment, offset=u64, at=Py_ssize_t, number=u32, lo=u64, d=bytes)
    cpdef long long arrival(self, Message message) except? -1
    @cython.locals(number=u32, lo=u64, d=bytes, at=Py_ssize_t)
    cpdef slab(self, Segment segment, u64 offset)
    cpdef woken(self)
    cpdef recover(self)
    cpdef rest(self, marks)
    cpdef close(self)
