# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport cut, get32, same

@cython.final
cdef class Converter:
    cdef public Py_ssize_t header_max
    cdef bytes address
    cdef bytes source
    cdef bytes transfer
    cdef bytes transfer_source
    cdef bytes basic
    cdef unsigned long long basic_size

    cpdef bytes header_for_transfer(
        self, const unsigned char* buffer, Py_ssize_t address_len, Py_ssize_t header_at,
        Py_ssize_t header_size,
    )
    cpdef bytes transfer_at(
        self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t address_len,
        Py_ssize_t header_at, Py_ssize_t header_size,
    )
    cpdef bytes make_transfer(self, bytes address, bytes payload)
    cpdef bytes header_for_basic(
        self, const unsigned char* buffer, Py_ssize_t address_len, Py_ssize_t position, Py_ssize_t size,
        unsigned long long body_size,
    )
    cpdef bytes make_basic(self, bytes payload, object body_size)

@cython.locals(size=Py_ssize_t)
cpdef bytes join_body_frames(bytes buffer, Py_ssize_t position, Py_ssize_t end)
