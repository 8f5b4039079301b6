# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.queue.destination cimport Consumer
from headrace.model.stream.log cimport StreamLog
from headrace.store.journal.journal cimport Journal
from headrace.store.segment.record cimport C_BEGIN, C_GROUP, C_HEAD, C_MESSAGE, C_MESSAGE_HEAD, seal
from headrace.store.stream.files cimport StreamGroup, StreamSegment
from headrace.store.stream.index cimport StreamIndex
from headrace.store.stream.reader cimport StreamReader
from headrace.store.stream.scan cimport C_INDEX_STEP
from headrace.wire.memory cimport copy, put16, put32, put64

ctypedef unsigned char u8
ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef class DiskStreamLog(StreamLog):
    cdef public Journal journal
    cdef public object files
    cdef public StreamIndex stream_index
    cdef public StreamReader reader
    cdef public u64 segment_size
    cdef public u64 segment_size_max
    cdef u64 segment_size_usual
    cdef public Py_ssize_t tail
    cdef public u64 seed
    cdef public list segments
    cdef public bytearray buffer
    cdef public Py_ssize_t capacity
    cdef public object spare_buffer
    cdef public Py_ssize_t buffer_end
    cdef public list writes
    cdef public Py_ssize_t write_start
    cdef public u64 write_offset
    cdef public u64 file_offset
    cdef public u64 indexed
    cdef public list index
    cdef public u64 groups
    cdef public u64 begun_transaction
    cdef public object uncertain_transactions
    cdef public list group_transactions
    cdef public long long roll_after_ms
    cdef public long long newest_ms
    cdef public bint is_dirty
    cdef public bytes key
    cdef public tuple announced
    cdef public u64 lost_number
    cdef public object offloading

    @cython.locals(n=Py_ssize_t, length=u32, size=u64, buffer="u8*", base=Py_ssize_t, offset=u64, full=bint)
    cpdef unsigned long long append(
        self, bytes data, Py_ssize_t address_len, Py_ssize_t body_size, long long arrived_ms
    ) except? 0
    @cython.locals(buffer="u8*")
    cpdef mark_group(self, bint continues)
    cpdef begin_transaction(self, u64 number)
    cpdef trim(self, long long now_ms)
    cpdef remove_oldest(self, Py_ssize_t count)
    cpdef long long bytes_from(self, unsigned long long offset) except -1
    cpdef list read(self, unsigned long long offset, Py_ssize_t bytes_max)
    @cython.locals(next_offset=u64)
    cpdef unsigned long long deliver_records(
        self, unsigned long long offset, unsigned long long end, Consumer consumer
    ) except? 0
    @cython.locals(data=bytes)
    cdef u64 deliver_one_by_one(self, u64 offset, u64 end, Consumer consumer) except? 0
    cpdef unsigned long long offset_at(self, long long timestamp_ms) except? 0
    cpdef long long measure(self, long long first, long long last) except -1
    cpdef long long bytes_before(self, u64 offset) except -1
    cpdef long long find_end(self, long long first, long long last, long long bytes_max) except -1
    cpdef close(self)
    cpdef delete(self)
