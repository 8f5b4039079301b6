# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.message cimport C_LARGE, Message
from headrace.store.segment.read_ahead cimport ReadAhead, ReadBlock
from headrace.store.segment.record cimport C_HEAD, C_MESSAGE_HEAD, first_word, check_record, residue
from headrace.store.segment.segment cimport Segment
from headrace.wire.memory cimport cut, get32, get64

ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef u64 INDEX_MASK
cdef Py_ssize_t READ_SLACK

@cython.final
cdef class PageIn:
    cdef object log
    cdef object disk
    cdef object files
    cdef dict segments
    cdef public ReadAhead read_ahead

    @cython.locals(i=u32, segment=Segment)
    cpdef locate(self, u64 position)
    @cython.locals(i=u32, segment=Segment)
    cdef find(self, u64 position)
    @cython.locals(
        segment=Segment, offset=u64, base=Py_ssize_t, q=Py_ssize_t, n=Py_ssize_t, start=Py_ssize_t,
        size=Py_ssize_t,
    )
    cdef load(self, Message message)
    @cython.locals(segment=Segment, offset=u64, base=Py_ssize_t, block=ReadBlock)
    cdef u64 read_arrival_ms(self, u64 position) except? 0
    @cython.locals(block=ReadBlock, data=bytes, base=Py_ssize_t, length=Py_ssize_t, head_size=Py_ssize_t)
    cpdef read_record(self, Segment segment, u64 offset, Py_ssize_t size)
