# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.wire.memory cimport copy, cut, get16, get32, get64, put16, put32, same
from headrace.wire.table cimport check_table, value_end
from headrace.wire.property_bits cimport (
    HAS_APP_ID, HAS_CLUSTER_ID, HAS_CONTENT_ENCODING, HAS_CONTENT_TYPE, HAS_CORRELATION_ID,
    HAS_DELIVERY_MODE, HAS_EXPIRATION, HAS_HEADERS, HAS_MESSAGE_ID, HAS_PRIORITY, HAS_REPLY_TO,
    HAS_TIMESTAMP, HAS_TYPE, HAS_USER_ID,
)

@cython.final
cdef class BasicScan:
    cdef readonly unsigned int flags
    cdef readonly unsigned long long body_size
    cdef readonly unsigned int delivery_mode
    cdef readonly unsigned int priority
    cdef readonly unsigned long long timestamp
    cdef readonly Py_ssize_t content_type_at
    cdef readonly Py_ssize_t content_type_len
    cdef readonly Py_ssize_t content_encoding_at
    cdef readonly Py_ssize_t content_encoding_len
    cdef readonly Py_ssize_t headers_at
    cdef readonly Py_ssize_t headers_end
    cdef readonly Py_ssize_t correlation_id_at
    cdef readonly Py_ssize_t correlation_id_len
    cdef readonly Py_ssize_t reply_to_at
    cdef readonly Py_ssize_t reply_to_len
    cdef readonly Py_ssize_t expiration_at
    cdef readonly Py_ssize_t expiration_len
    cdef readonly Py_ssize_t message_id_at
    cdef readonly Py_ssize_t message_id_len
    cdef readonly Py_ssize_t type_at
    cdef readonly Py_ssize_t type_len
    cdef readonly Py_ssize_t user_id_at
    cdef readonly Py_ssize_t user_id_len
    cdef readonly Py_ssize_t app_id_at
    cdef readonly Py_ssize_t app_id_len
    cdef readonly Py_ssize_t cluster_id_at
    cdef readonly Py_ssize_t cluster_id_len

    cpdef void clear(self) noexcept

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _check_shortstr(const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(flags=cython.uint, size=Py_ssize_t)
cpdef bint scan_basic(
    const unsigned char* buffer, Py_ssize_t at, Py_ssize_t end, BasicScan out
) noexcept

@cython.locals(scan=BasicScan, at=Py_ssize_t, bit=cython.int)
cpdef tuple property_range(bytes payload, int flag)

@cython.locals(start=Py_ssize_t, end=Py_ssize_t)
cpdef bytes with_property(bytes payload, int flag, bytes encoded)

@cython.locals(start=Py_ssize_t, end=Py_ssize_t)
cpdef bytes without_property(bytes payload, int flag)

@cython.locals(start=Py_ssize_t, end=Py_ssize_t, kept=bytes)
cpdef bytes with_header_entry(bytes payload, bytes entry)

@cython.locals(scan=BasicScan, start=Py_ssize_t, end=Py_ssize_t, lo=Py_ssize_t, hi=Py_ssize_t,
               resume=Py_ssize_t, kept_at=Py_ssize_t, key_end=Py_ssize_t, n=Py_ssize_t,
               grown=Py_ssize_t, flags=cython.uint, key=bytes, changed=bytes, size=bytes,
               made=bytearray)
cpdef bytes with_header_entry_at(bytes data, Py_ssize_t at, bytes entry)

@cython.locals(start=Py_ssize_t, end=Py_ssize_t, kept=bytes)
cpdef bytes without_header_entry(bytes payload, bytes key)

cdef bytes _with_flags(
    bytes payload, object flags, Py_ssize_t start, Py_ssize_t end, bytes middle
)

cdef Py_ssize_t _property_end(bytes payload, Py_ssize_t at, int flag) noexcept

@cython.locals(at=Py_ssize_t, key_end=Py_ssize_t, entry_end=Py_ssize_t)
cdef bytes _entries_without(bytes payload, Py_ssize_t start, Py_ssize_t end, bytes key)
