# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.message cimport C_KIND_MASK, C_REDELIVERED
from headrace.model.queue.destination cimport Consumer
from headrace.store.segment.record cimport (
    C_HEAD, C_MESSAGE, C_MESSAGE_HEAD, check_record, find_record_from, check_head,
)
from headrace.store.stream.files cimport StreamSegment
from headrace.store.stream.index cimport StreamIndex
from headrace.wire.memory cimport cut, get16, get32, get64

cdef Py_ssize_t READ_SIZE

ctypedef unsigned int u32
ctypedef unsigned long long u64

@cython.final
cdef class StreamReader:
    cdef object files
    cdef object disk
    cdef StreamIndex index
    cdef object positions
    cdef object recent

    cpdef clear(self)
    @cython.locals(records=list, segment=StreamSegment, next_segment=StreamSegment, file_offset=u64, read_end=u64)
    cdef list read(self, u64 offset, u64 committed, Py_ssize_t bytes_max)
    @cython.locals(
        segment=StreamSegment, next_segment=StreamSegment,
        first_offset=u64, file_offset=u64, left=u64, chunk=bytes, stop=Py_ssize_t, base=Py_ssize_t, seed=u64,
        length=u32, seq=u64, start=Py_ssize_t, end_of_data=Py_ssize_t,
    )
    cdef u64 deliver_records(self, u64 offset, u64 end, Py_ssize_t tail, Consumer consumer) except? 0
    cdef remember(self, u64 offset, StreamSegment segment, u64 file_offset)
    cdef tuple find(self, u64 offset)
    @cython.locals(
        left=u64, chunk=bytes, end=Py_ssize_t, base=Py_ssize_t, size=Py_ssize_t, seed=u64, length=u32,
        seq=u64, start=Py_ssize_t, n=Py_ssize_t,
    )
    cdef u64 read_records(
        self, StreamSegment segment, u64 file_offset, u64 offset, u64 committed, Py_ssize_t bytes_max,
        list records,
    ) except? 0
