# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.wire.memory cimport cut, get32, get64, same
from headrace.wire.properties cimport BasicScan, scan_basic
from headrace.wire.table cimport value_end

@cython.final
cdef class Columns:
    cdef BasicScan _scan
    cdef readonly Py_ssize_t count
    cdef readonly list content_type
    cdef readonly list content_encoding
    cdef readonly list delivery_mode
    cdef readonly list priority
    cdef readonly list correlation_id
    cdef readonly list reply_to
    cdef readonly list expiration
    cdef readonly list message_id
    cdef readonly list timestamp
    cdef readonly list type
    cdef readonly list user_id
    cdef readonly list app_id
    cdef readonly list cluster_id
    cdef readonly list arrival_ms
    cdef readonly list header_ends
    cdef readonly list header_names
    cdef readonly list header_values

    @cython.locals(scan=BasicScan, row=Py_ssize_t, flags=cython.uint, at=Py_ssize_t)
    cpdef bint add(self, bytes header)

    @cython.locals(
        start=Py_ssize_t, nested=bint, first=Py_ssize_t, key_at=Py_ssize_t, value_at=Py_ssize_t,
        tag=cython.uint, text=bytes,
    )
    cdef void _add_headers(self, bytes header, Py_ssize_t at, Py_ssize_t end)

    cdef void _add_values(self, dict table, Py_ssize_t first)

    cdef void _drop_repeated(self, Py_ssize_t first)

cdef void _put(list column, Py_ssize_t row, object value)

cpdef bint is_text(bytes raw)
