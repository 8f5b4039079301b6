# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.wire.memory cimport get16, get32
from headrace.wire.table cimport check_utf8

cdef Py_ssize_t _DEPTH_MAX
cdef Py_ssize_t _ENTRIES_MAX
cdef Py_ssize_t _BYTES_MAX
cdef Py_ssize_t _FEW_KEYS

@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t check_map(const unsigned char* d, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t check_value(
    const unsigned char* d, int code, Py_ssize_t at, Py_ssize_t end
) noexcept

@cython.locals(width=cython.int, size=Py_ssize_t)
cpdef Py_ssize_t value_size(
    const unsigned char* d, int code, Py_ssize_t at, Py_ssize_t end
) noexcept

@cython.locals(code=cython.int, count=Py_ssize_t, number=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t)
cdef Py_ssize_t _check_container(
    const unsigned char* d, Py_ssize_t at, Py_ssize_t end, int kind, int depth, Py_ssize_t seen
) noexcept

@cython.locals(place=Py_ssize_t, code=cython.int)
cdef bint _has_key(
    const unsigned char* d, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size
) noexcept

@cython.locals(size=Py_ssize_t, count=Py_ssize_t, code=cython.int)
cdef bint _keys_differ(const unsigned char* d, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(end=Py_ssize_t)
cpdef tuple decode_map(bytes data, Py_ssize_t at=*)

@cython.locals(start=Py_ssize_t, size=Py_ssize_t, code=cython.int)
cdef dict _decode_entries(bytes data, Py_ssize_t at, Py_ssize_t end)

@cython.locals(count=Py_ssize_t, size=Py_ssize_t, code=cython.int)
cdef list _decode_items(bytes data, Py_ssize_t at, Py_ssize_t end)

@cython.locals(count=Py_ssize_t, size=Py_ssize_t, code=cython.int)
cdef _decode_array(bytes data, Py_ssize_t at, Py_ssize_t end)

@cython.locals(width=cython.int)
cdef _decode_value(bytes data, int code, Py_ssize_t at, Py_ssize_t end)
