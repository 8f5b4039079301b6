# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.wire.memory cimport get32

cdef Py_ssize_t _DEPTH_MAX
cdef Py_ssize_t _ENTRIES_MAX
cdef Py_ssize_t _BYTES_MAX

cpdef Py_ssize_t check_table(const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(size=Py_ssize_t, tag=cython.int)
cdef Py_ssize_t _check_entries(
    const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end, int depth, bint named, Py_ssize_t count
) noexcept

@cython.locals(tag=cython.int)
cpdef Py_ssize_t value_end(const unsigned char* buffer, Py_ssize_t at) noexcept

@cython.locals(end=Py_ssize_t, size=Py_ssize_t, value=Py_ssize_t, stop=Py_ssize_t, tag=cython.int)
cpdef bytes string_entry(bytes data, Py_ssize_t at, bytes key)

@cython.locals(first=cython.int, low=cython.int, high=cython.int, more=cython.int)
cpdef bint check_utf8(const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(end=Py_ssize_t)
cpdef tuple decode_table(bytes data, Py_ssize_t at=*)

@cython.locals(end=Py_ssize_t, size=Py_ssize_t)
cpdef tuple decode_array(bytes data, Py_ssize_t at=*)

@cython.locals(start=Py_ssize_t)
cdef dict _decode_entries(bytes data, Py_ssize_t at, Py_ssize_t end)

cdef list _decode_items(bytes data, Py_ssize_t at, Py_ssize_t end)

@cython.locals(tag=cython.int, octet=cython.int, start=Py_ssize_t, end=Py_ssize_t)
cdef tuple _decode_value(bytes data, Py_ssize_t at)
