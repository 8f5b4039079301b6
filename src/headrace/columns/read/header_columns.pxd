# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.client.stream.blocks cimport Octets
from headrace.wire.memory cimport copy, cut, get64, load32, same, store32, store64
from headrace.wire.properties cimport BasicScan, scan_basic
from headrace.wire.table cimport check_utf8, value_end

cdef Py_ssize_t INITIAL_BYTES
cdef unsigned long long SECONDS_MAX
cdef bytes _OFFSET_KEY
cdef bytes _ARRIVAL_KEY
cdef bytes _REDELIVERED_KEY

@cython.final
cdef class TextColumn:
    cdef readonly bytearray data
    cdef readonly Py_ssize_t data_size
    cdef readonly bytearray ends
    cdef readonly bytearray valid
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t rows_max
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t valid_count

    @cython.locals(valid="unsigned char*")
    cdef int put(
        self, Py_ssize_t row, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end
    ) except -1
    cdef put_bytes(self, Py_ssize_t row, bytes text)
    cpdef int fill_to(self, Py_ssize_t row) except -1
    cdef grow_rows(self, Py_ssize_t row)
    cdef grow_data(self, Py_ssize_t size)
    @cython.locals(index=Py_ssize_t)
    cdef truncate(self, Py_ssize_t row)
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t)
    cdef bytes text_at(self, Py_ssize_t row)

@cython.final
cdef class NumberColumn:
    cdef readonly bytearray data
    cdef readonly bytearray valid
    cdef readonly Py_ssize_t valid_count

    @cython.locals(valid="unsigned char*")
    cdef int put(self, Py_ssize_t row, long long value) except -1

@cython.final
cdef class HeaderColumns:
    cdef BasicScan _scan
    cdef Py_ssize_t rows_max
    cdef readonly Py_ssize_t count
    cdef readonly TextColumn content_type
    cdef readonly TextColumn content_encoding
    cdef readonly NumberColumn delivery_mode
    cdef readonly NumberColumn priority
    cdef readonly TextColumn correlation_id
    cdef readonly TextColumn reply_to
    cdef readonly TextColumn expiration
    cdef readonly TextColumn message_id
    cdef readonly NumberColumn timestamp
    cdef readonly TextColumn type
    cdef readonly TextColumn user_id
    cdef readonly TextColumn app_id
    cdef readonly TextColumn cluster_id
    cdef readonly NumberColumn arrival_ms
    cdef readonly NumberColumn redelivered
    cdef readonly bytearray header_ends
    cdef readonly Py_ssize_t header_count
    cdef readonly TextColumn header_names
    cdef readonly TextColumn header_values

    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, row=Py_ssize_t)
    cpdef Py_ssize_t add_all(self, Octets headers, Py_ssize_t count) except -1
    @cython.locals(scan=BasicScan, row=Py_ssize_t, flags=cython.uint, position=Py_ssize_t,
                   seconds=cython.ulonglong)
    cpdef bint add(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(flags=cython.uint, position=Py_ssize_t)
    cdef _add_rare_properties(self, Py_ssize_t row, const unsigned char* buffer, BasicScan scan)
    cdef _add_text(
        self, TextColumn column, Py_ssize_t row, const unsigned char* buffer, Py_ssize_t start,
        Py_ssize_t end,
    )
    @cython.locals(
        start=Py_ssize_t, has_other_values=bint, first=Py_ssize_t, key_at=Py_ssize_t, value_at=Py_ssize_t,
        tag=cython.uint,
    )
    cdef _add_headers(self, const unsigned char* buffer, Py_ssize_t position, Py_ssize_t end)
    cdef _add_values(self, dict table, Py_ssize_t first)
    @cython.locals(names=TextColumn, values=TextColumn, count=Py_ssize_t)
    cdef _drop_repeated_names(self, Py_ssize_t first)

@cython.locals(buffer="const unsigned char*", index=Py_ssize_t, earlier=Py_ssize_t,
               start=Py_ssize_t, size=Py_ssize_t, earlier_start=Py_ssize_t)
cdef bint has_repeats(TextColumn names, Py_ssize_t first, Py_ssize_t count) except -1

@cython.locals(index=Py_ssize_t)
cdef bint equal_bytes(
    const unsigned char* buffer, Py_ssize_t first, Py_ssize_t second, Py_ssize_t size
) noexcept
