# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport put32

cdef Py_ssize_t HEADER_SIZE

@cython.final
cdef class FrameOutput:
    cdef Py_ssize_t size
    cdef bytearray data
    cdef object view
    cdef Py_ssize_t head
    cdef Py_ssize_t tail

    cpdef Py_ssize_t unsent(self) noexcept
    @cython.locals(position=Py_ssize_t)
    cdef Py_ssize_t begin_frame(self, unsigned int number, int kind, Py_ssize_t size) except -1
    @cython.locals(position=Py_ssize_t)
    cdef put_number(self, unsigned int number, int kind, unsigned int value)
    @cython.locals(unsent=Py_ssize_t, capacity=Py_ssize_t, data=bytearray)
    cdef grow(self, Py_ssize_t size)
    cdef replace(self, bytearray data, Py_ssize_t unsent)
    @cython.locals(unsent=Py_ssize_t)
    cdef move_to_start(self)
    @cython.locals(sent=Py_ssize_t)
    cdef bint send(self, object sock) except -1
    cdef clear(self)
