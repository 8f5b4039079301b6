# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.client.stream.blocks cimport Octets
from headrace.wire.memory cimport copy, cut, get64, load32, same, store32, store64
from headrace.wire.properties cimport BasicScan, scan_basic
from headrace.wire.table cimport check_utf8, value_end

cdef Py_ssize_t ROOM
cdef unsigned long long SECONDS_MAX
cdef bytes _OFFSET_KEY
cdef bytes _ARRIVAL_KEY
cdef bytes _REDELIVERED_KEY

@cython.final
cdef class Texts:
    cdef readonly bytearray data
    cdef readonly Py_ssize_t used
    cdef readonly bytearray ends
    cdef readonly bytearray valid
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t rows_max
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t known

    @cython.locals(valid="unsigned char*")
    cdef int put(self, Py_ssize_t row, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi) except -1
    cdef put_bytes(self, Py_ssize_t row, bytes text)
    cpdef int reach(self, Py_ssize_t row) except -1
    cdef widen(self, Py_ssize_t row)
    cdef grow(self, Py_ssize_t size)
    @cython.locals(at=Py_ssize_t)
    cdef cut_back(self, Py_ssize_t row)
    @cython.locals(lo=Py_ssize_t, hi=Py_ssize_t)
    cdef bytes row(self, Py_ssize_t row)

@cython.final
cdef class Numbers:
    cdef readonly bytearray data
    cdef readonly bytearray valid
    cdef readonly Py_ssize_t known

    @cython.locals(valid="unsigned char*")
    cdef int put(self, Py_ssize_t row, long long value) except -1

@cython.final
cdef class Columns:
    cdef BasicScan _scan
    cdef Py_ssize_t rows_max
    cdef readonly Py_ssize_t count
    cdef readonly Texts content_type
    cdef readonly Texts content_encoding
    cdef readonly Numbers delivery_mode
    cdef readonly Numbers priority
    cdef readonly Texts correlation_id
    cdef readonly Texts reply_to
    cdef readonly Texts expiration
    cdef readonly Texts message_id
    cdef readonly Numbers timestamp
    cdef readonly Texts type
    cdef readonly Texts user_id
    cdef readonly Texts app_id
    cdef readonly Texts cluster_id
    cdef readonly Numbers arrival_ms
    cdef readonly Numbers redelivered
    cdef readonly bytearray header_ends
    cdef readonly Py_ssize_t header_count
    cdef readonly Texts header_names
    cdef readonly Texts header_values

    @cython.locals(lo=Py_ssize_t, hi=Py_ssize_t, row=Py_ssize_t)
    cpdef Py_ssize_t add_all(self, Octets heads, Py_ssize_t count) except -1
    @cython.locals(scan=BasicScan, row=Py_ssize_t, flags=cython.uint, at=Py_ssize_t,
                   seconds=cython.ulonglong)
    cpdef bint add(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi) except -1
    @cython.locals(flags=cython.uint, at=Py_ssize_t)
    cdef _add_rare(self, Py_ssize_t row, const unsigned char* d, BasicScan scan)
    cdef _add_text(
        self, Texts column, Py_ssize_t row, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi
    )
    @cython.locals(
        start=Py_ssize_t, nested=bint, first=Py_ssize_t, key_at=Py_ssize_t, value_at=Py_ssize_t,
        tag=cython.uint,
    )
    cdef _add_headers(self, const unsigned char* d, Py_ssize_t at, Py_ssize_t end)
    cdef _add_values(self, dict table, Py_ssize_t first)
    @cython.locals(names=Texts, values=Texts, count=Py_ssize_t)
    cdef _drop_repeated(self, Py_ssize_t first)

@cython.locals(d="const unsigned char*", a=Py_ssize_t, b=Py_ssize_t, lo=Py_ssize_t,
               size=Py_ssize_t, at=Py_ssize_t)
cdef bint repeats(Texts names, Py_ssize_t first, Py_ssize_t count) except -1

@cython.locals(i=Py_ssize_t)
cdef bint alike(const unsigned char* d, Py_ssize_t a, Py_ssize_t b, Py_ssize_t size) noexcept

cpdef bint is_text(bytes raw)
