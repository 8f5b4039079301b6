# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.message cimport C_LARGE, Message
from headrace.store.segment.read_ahead cimport ReadAhead, ReadBlock
from headrace.wire.memory cimport copy, cut, get32, put32

ctypedef long long i64

cdef i64 BUFFER
cdef i64 PART_SIZE
cdef i64 KEEP_MAX
cdef i64 READ_SLACK
cdef i64 HEAD

@cython.final
cdef class Scratch:
    cdef public object disk
    cdef public str directory
    cdef public i64 chunk
    cdef public int handle
    cdef public i64 end
    cdef public i64 next_offset
    cdef public i64 limit
    cdef public bytearray buffer
    cdef public i64 buffered_bytes
    cdef public i64 buffer_offset
    cdef public dict live
    cdef public object unused
    cdef public dict chunk_counts
    cdef public ReadAhead read_ahead

    @cython.locals(data=bytes, n=i64, body=i64, size=i64, chunk=i64, last=i64)
    cpdef bint put(self, Message message) except -1
    @cython.locals(offset=i64)
    cdef int buffer_message(self, bytes data, i64 n) except -1
    cpdef claim_chunks(self, i64 size)
    cpdef flush(self)
    @cython.locals(block=ReadBlock, ahead=i64, data=bytes)
    cdef bytes read(self, i64 offset, i64 size, i64 expected)
    cpdef bytes read_file(self, i64 size, i64 offset)
    @cython.locals(
        offset=i64, expected=i64, head=bytes, n=i64, body=i64, data=bytes, start=i64, k=i64
    )
    cpdef load(self, Message message)
    @cython.locals(chunk=i64, last=i64, remaining=i64)
    cpdef release(self, Message message)
    cpdef close(self)
