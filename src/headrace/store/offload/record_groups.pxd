# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.store.segment.record cimport C_MESSAGE, check_record, find_record_from
from headrace.wire.memory cimport get32, get64, put32

cdef enum:
    C_GROUP_STEP = 65536
    C_ENTRY = 12

ctypedef unsigned int u32
ctypedef unsigned long long u64

@cython.final
cdef class GroupScan:
    cdef u64 seed
    cdef public list groups
    cdef bytearray entries
    cdef Py_ssize_t used
    cdef u64 first_offset
    cdef u64 first_file_offset
    cdef long long first_ms
    cdef u64 offset
    cdef u64 file_offset
    cdef long long ms

    @cython.locals(end=Py_ssize_t, following=Py_ssize_t, length=u32)
    cpdef Py_ssize_t read_group(
        self, bytes window, Py_ssize_t position, u64 window_offset, bint last
    ) except -1
    @cython.locals(entries=bytearray)
    cdef int add_record(self, u64 offset, u64 file_offset, long long arrived_ms) except -1
    cpdef end_group(self)

@cython.locals(
    position=Py_ssize_t, end=Py_ssize_t, offset=cython.longlong, file_offset=cython.longlong,
    ms=cython.longlong, step=cython.longlong, value=cython.longlong,
    earlier_offset=cython.longlong, earlier_file_offset=cython.longlong,
)
cpdef tuple find_in_group(bytes entries, int column, long long minimum, bint before)
