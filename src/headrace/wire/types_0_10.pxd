# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.wire.memory cimport get16, get32
from headrace.wire.table cimport check_utf8

cdef enum:
    C_BOOLEAN = 0x08
    C_CHAR = 0x04
    C_INT32 = 0x21
    C_CHAR_UTF32 = 0x27
    C_INT64 = 0x31
    C_UINT64 = 0x32
    C_DOUBLE = 0x33
    C_DATETIME = 0x38
    C_UUID = 0x48
    C_STR16 = 0x95
    C_VBIN16 = 0x90
    C_VBIN32 = 0xA0
    C_MAP = 0xA8
    C_LIST = 0xA9
    C_ARRAY = 0xAA
    C_STRUCT32 = 0xAB
    C_DEC32 = 0xC8
    C_DEC64 = 0xD8
    C_VOID = 0xF0
    C_BIT = 0xF1

cdef Py_ssize_t _DEPTH_MAX
cdef Py_ssize_t _ENTRIES_MAX
cdef Py_ssize_t _BYTES_MAX
cdef Py_ssize_t _FEW_KEYS

@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t check_map(const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t check_value(
    const unsigned char* buffer, int code, Py_ssize_t at, Py_ssize_t end
) noexcept

@cython.locals(width=cython.int, size=Py_ssize_t)
cpdef Py_ssize_t value_size(
    const unsigned char* buffer, int code, Py_ssize_t at, Py_ssize_t end
) noexcept

@cython.locals(code=cython.int, count=Py_ssize_t, number=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t)
cdef Py_ssize_t _check_container(
    const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end, int container, int depth, Py_ssize_t seen
) noexcept

@cython.locals(place=Py_ssize_t, code=cython.int)
cdef bint _has_key(
    const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size
) noexcept

@cython.locals(size=Py_ssize_t, count=Py_ssize_t, code=cython.int)
cdef bint _keys_differ(const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end) noexcept

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
