# SPDX-License-Identifier: Apache-2.0
import cython

cdef unsigned int SERIAL_MASK
cdef Py_ssize_t RANGES_MAX

@cython.final
cdef class CompletedIds:
    cdef public long long low
    cdef public list starts
    cdef public list ends

    @cython.locals(distance=cython.longlong)
    cpdef long long unwrap(self, unsigned int number)
    @cython.locals(index=Py_ssize_t)
    cpdef bint has(self, long long number) except -1
    @cython.locals(count=Py_ssize_t, first=Py_ssize_t, end=Py_ssize_t)
    cpdef add(self, long long first_id, long long last_id)
    @cython.locals(count=Py_ssize_t)
    cpdef absorb(self)
    @cython.locals(index=Py_ssize_t)
    cpdef list missing(self, long long first_id, long long last_id)

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef Py_ssize_t index_from(list ends, long long number) except -1
