# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport get32

@cython.locals(head=Py_ssize_t, size=Py_ssize_t, payload=bytes)
cdef bytes with_offset(
    bytes data, Py_ssize_t address_len, object offset, object arrived_ms
)
