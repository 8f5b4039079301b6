# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message

cdef Py_ssize_t FIRST_CAPACITY
cdef Py_ssize_t SHRINK_ABOVE

@cython.final
cdef class Ring:
    cdef list slots
    cdef readonly Py_ssize_t head
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t mask

    cpdef int push(self, Message message) except -1
    @cython.locals(head=Py_ssize_t, message=Message)
    cpdef Message pop(self)
    cpdef Message get(self, Py_ssize_t index)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, message=Message)
    cpdef Py_ssize_t index_after(self, unsigned long long seq) except -1
    cpdef int clear_at(self, Py_ssize_t index) except -1
    cpdef int clear(self) except -1
    @cython.locals(old_slots=list, slots=list, i=Py_ssize_t)
    cpdef int resize(self, Py_ssize_t capacity) except -1
