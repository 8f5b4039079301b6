# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.endpoint cimport Endpoint
from headrace.protocol.output cimport BufferPool
from headrace.wire.memory cimport cut, get32

cdef class RelayEnd(Endpoint):
    cdef public RelayEnd other
    cdef public bint holding

    @cython.locals(other=RelayEnd)
    cdef Py_ssize_t feed(self, const unsigned char* d, Py_ssize_t n) except -1
    @cython.locals(other=RelayEnd)
    cpdef on_output_drained(self)
    @cython.locals(other=RelayEnd)
    cpdef end(self)
    cpdef force_close(self, str reason)

cdef class RelayedOpening(Endpoint):
    cdef public bytes challenge
    cdef public bint challenged
    cdef public object accept
    cdef public Endpoint accepted

    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t)
    cdef Py_ssize_t feed(self, const unsigned char* d, Py_ssize_t n) except -1
