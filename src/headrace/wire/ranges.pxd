# SPDX-License-Identifier: Apache-2.0
cimport cython

cdef long long _MASK
cdef long long _HALF
cdef Py_ssize_t _RANGES_MAX

cdef class SequenceSet:
    cdef list _lo
    cdef list _hi

    cpdef add(self, number)

    @cython.locals(
        size=cython.longlong, last=Py_ssize_t, first=Py_ssize_t, end=Py_ssize_t, los=list, his=list,
        lowest=cython.longlong, highest=cython.longlong,
    )
    cpdef add_range(self, long long lo, long long hi)

    cpdef remove(self, number)

    @cython.locals(
        size=cython.longlong, count=Py_ssize_t, first=Py_ssize_t, end=Py_ssize_t, los=list, his=list,
    )
    cpdef remove_range(self, long long lo, long long hi)

    @cython.locals(place=Py_ssize_t)
    cpdef bint contains(self, long long number)

    @cython.locals(base=cython.longlong, distance=cython.longlong)
    cdef long long _near(self, long long number)

    cdef _rebase(self)

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef Py_ssize_t _after(list ends, long long number)
