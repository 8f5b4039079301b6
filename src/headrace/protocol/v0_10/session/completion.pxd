# SPDX-License-Identifier: Apache-2.0
import cython

cdef unsigned int SERIAL_MASK
cdef Py_ssize_t RANGES_MAX

@cython.final
cdef class CompletedIds:
    cdef public long long low
    cdef public list los
    cdef public list his

    @cython.locals(distance=cython.longlong)
    cpdef long long near(self, unsigned int number)
    @cython.locals(place=Py_ssize_t)
    cpdef bint has(self, long long number) except -1
    @cython.locals(count=Py_ssize_t, first=Py_ssize_t, end=Py_ssize_t)
    cpdef add(self, long long lo, long long hi)
    @cython.locals(count=Py_ssize_t)
    cpdef absorb(self)
    @cython.locals(place=Py_ssize_t)
    cpdef list missing(self, long long lo, long long hi)

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, end=cython.longlong)
cdef Py_ssize_t after(list ends, long long number) except -1
