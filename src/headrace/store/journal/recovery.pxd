# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.message cimport C_REDELIVERED, Message
from headrace.store.segment.record cimport (
    C_BEGIN, C_CLEAN, C_COMMIT, C_COUNTED, C_DECIDED, C_DEFINED, C_DROPPED, C_FACT, C_GROUP, C_MARKED, C_MESSAGE,
    C_MOVED, C_PREPARED, C_RESERVED, C_RETIRED, C_RETURNED, C_SEALED, C_SETTLED, check_record, find_record_from,
)
from headrace.store.journal.rows cimport Rows
from headrace.store.segment.segment cimport Segment
from headrace.wire.memory cimport get32, get64

ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef enum:
    C_PARTIAL = 0
    C_WHOLE = 1
    C_LAST = 2

cdef class Recovery:
    cdef public object disk
    cdef public str directory
    cdef public str name
    cdef public u64 secret
    cdef public bint is_clean
    cdef public u32 next_number
    cdef public list segments
    cdef public list spares
    cdef public dict reserved
    cdef public set marks
    cdef public Rows rows
    cdef public object deferred
    cdef public object open_transaction
    cdef public int quarantined
    cdef public dict prepared
    cdef public set branch_rows
    cdef public set locked
    cdef public set shared_transactions
    cdef public object facts
    cdef public object definitions
    cdef public u64 oldest
    cdef public u64 reached
    cdef public object counts

    @cython.locals(offset=Py_ssize_t, end=Py_ssize_t, length=u32, type=u32, next_offset=Py_ssize_t)
    cdef scan(self, Segment segment, bytearray buffer, Py_ssize_t base, Py_ssize_t size, int extent)
    @cython.locals(message=Message, entry=tuple)
    cpdef Message make_message(self, Py_ssize_t row, u32 queue_id)
