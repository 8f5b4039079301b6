# SPDX-License-Identifier: Apache-2.0
import cython

ctypedef long long i64

@cython.final
cdef class Stretch:
    cdef public i64 file
    cdef public i64 lo
    cdef public i64 hi
    cdef public bytes octets
    cdef public i64 used

@cython.final
cdef class ReadAhead:
    cdef public list stretches

    @cython.locals(stretch=Stretch, i=Py_ssize_t)
    cpdef Stretch find(self, i64 file, i64 at, i64 size)
    @cython.locals(stretch=Stretch, i=Py_ssize_t, length=i64, ahead=i64)
    cpdef Py_ssize_t plan(self, i64 file, i64 at, i64 size) except -1
    @cython.locals(stretch=Stretch)
    cpdef Stretch keep(self, i64 file, i64 lo, bytes octets)
    cpdef clear(self)
