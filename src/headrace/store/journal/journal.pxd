# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.message cimport (
    C_KIND_MASK, C_LARGE, C_PAGED, C_PERSISTENT, C_REDELIVERED, C_SCRATCH, Message,
)
from headrace.model.ports cimport Span
from headrace.store.journal.delivery_counts cimport DeliveryCounts
from headrace.store.journal.page_in cimport PageIn
from headrace.store.segment.record cimport (
    C_BEGIN, C_CLEAN, C_COMMIT, C_DECIDED, C_DEFINED, C_DROPPED, C_FACT, C_MARKED, C_MESSAGE,
    C_MESSAGE_HEAD, C_PREPARED, C_RESERVED, C_RETURNED, seal,
)
from headrace.store.journal.scratch cimport Scratch
from headrace.store.segment.segment cimport Segment
from headrace.store.segment.span cimport SegmentSpan
from headrace.store.journal.log cimport SegmentLog
from headrace.store.journal.settlements cimport Settlements
from headrace.wire.memory cimport copy, get64, put16, put32, put64

ctypedef unsigned char u8
ctypedef unsigned int u32
ctypedef unsigned long long u64
ctypedef long long i64

cdef u64 INDEX_MASK

cdef class Journal(SegmentLog):
    cdef public bint is_clean
    cdef public bint is_recovered
    cdef public dict reserved
    cdef public dict prepared
    cdef public object current_facts
    cdef public object definitions
    cdef public object recovery
    cdef public u64 protected_position
    cdef public DeliveryCounts counts
    cdef Settlements settled
    cdef public u64 next_transaction
    cdef public u64 transaction
    cdef Segment turn_segment
    cdef u32 turn_first_index
    cdef u64 turn_start
    cdef public bint spans_streams
    cdef public list streams
    cdef public u64 paged_out
    cdef public u64 paged_in
    cdef public bint may_retire
    cdef public object compactor
    cdef public object retirement
    cdef public object disk_reserve
    cdef public PageIn page_in
    cdef public Scratch scratch

    @cython.locals(
        q=Py_ssize_t, n=Py_ssize_t, length=u32, size=u64, buffer="u8*", base=Py_ssize_t, segment=Segment,
        i=u32, position=u64,
    )
    cdef u64 publish(
        self, const u8* data, Py_ssize_t start, Py_ssize_t end, u32 address_len, u32 flags, u32 priority,
        i64 deadline_ms, i64 arrived_ms, u64 seq, u32 body_size, bytes queue_ids,
    ) except? 0
    @cython.locals(head=bytearray, data=bytes, position=u64, paged=bint, flags=u32)
    cpdef u64 publish_message(self, Message message, i64 arrived_ms, bytes queue_ids) except? 0
    @cython.locals(
        n=Py_ssize_t, length=u32, size=u64, buffer="u8*", base=Py_ssize_t, segment=Segment, i=u32,
        position=u64,
    )
    cpdef u64 append_returned(self, Message message, i64 arrived_ms, bytes queue_id) except? 0
    cpdef settle(self, u32 queue_id, u64 seq, u64 position)
    @cython.locals(message=Message)
    @cython.locals(segment=Segment)
    cpdef Span span(self)
    cpdef settle_each(self, u32 queue_id, list messages)
    @cython.locals(number=u32, i=u32, segment=Segment, outcome=cython.int)
    cpdef int forget(self, u32 queue_id, u64 position) except -2
    @cython.locals(outcome=cython.int)
    cpdef int settle_moved(
        self, Segment segment, bytearray forward, u32 queue_id, u32 i
    ) except -2
    cpdef flush_settled(self)
    cpdef u64 record_count(
        self, u32 queue_id, u64 seq, u64 position, u32 count, u64 due_ms
    ) except? 0
    cpdef bint is_unsettled(self, u32 queue_id, u64 position) except -1
    cpdef record_delivered(self, u32 queue_id, u64 seq)
    cpdef drop(self, u32 queue_id, u64 upto_seq)
    cpdef begin(self)
    @cython.locals(number=u64)
    cpdef commit(self)
    cpdef append_shared_commit(self, number)
    cpdef prepare(self, bytes xid, list publishes, list settles)
    cpdef append_prepared(self, prepared)
    cpdef decide(self, bytes xid, int status, long long decided_ms)
    cpdef fact(self, bytes key, object value)
    cpdef define(self, bytes key, object value)
    cpdef append_definition(self, bytes key, bytes value)
    cpdef seal_changes(self)
    cpdef protect_definitions(self)
    cpdef append_marks(self, bytes runs)
    cpdef start_write(self)
    cpdef roll(self, u64 size)
    cpdef bint handle_finished(self) except -1
    cpdef bint page_out(self, Message message) except -1
    cpdef release(self, Message message)
    cpdef load(self, Message message)
    cpdef long long arrival(self, Message message) except? -1
    cpdef read(self)
    cpdef recover(self)
    cpdef abandon(self)
    cpdef store_redelivered(self, marks)
    cpdef close(self)
