# SPDX-License-Identifier: Apache-2.0
import cython

ctypedef long long i64

@cython.final
cdef class ReadBlock:
    cdef public i64 file
    cdef public i64 start
    cdef public i64 end
    cdef public bytes data
    cdef public i64 used

@cython.final
cdef class ReadAhead:
    cdef public list blocks

    @cython.locals(block=ReadBlock, i=Py_ssize_t)
    cpdef ReadBlock find_block(self, i64 file, i64 offset, i64 size)
    @cython.locals(block=ReadBlock, i=Py_ssize_t, length=i64, ahead=i64)
    cpdef Py_ssize_t plan_read(self, i64 file, i64 offset, i64 size) except -1
    @cython.locals(block=ReadBlock)
    cpdef ReadBlock add_block(self, i64 file, i64 start, bytes data)
    cpdef clear(self)
