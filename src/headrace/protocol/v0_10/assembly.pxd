# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.output cimport BufferPool
from headrace.wire.memory cimport cut

cdef enum:
    C_TYPE_AT = 1
    C_SIZE_AT = 2
    C_TRACK_AT = 4
    C_CHANNEL_AT = 6
    C_RESERVED_AT = 8
    C_FRAME_HEAD = 12
    C_FIRST_SEGMENT = 8
    C_LAST_SEGMENT = 4
    C_FIRST_FRAME = 2
    C_LAST_FRAME = 1
    C_BEGINS = 10
    C_ONE_SEGMENT = 12
    C_FIRST_WHOLE = 11
    C_WHOLE = 15
    C_CONTROL = 0
    C_COMMAND = 1
    C_HEADER = 2
    C_BODY = 3

cdef int FIRST_SEGMENT
cdef int LAST_SEGMENT
cdef int FIRST_FRAME
cdef int LAST_FRAME
cdef int COMMAND
cdef int HEADER
cdef int BODY
cdef Py_ssize_t EMPTY_FRAMES_MAX
cdef Py_ssize_t PART_MIN
cdef Py_ssize_t PART_MAX

@cython.final
cdef class Assembly:
    cdef public bint is_active
    cdef public bint is_discarding
    cdef public int segment_type
    cdef public bint is_segment_open
    cdef public bint is_last_segment
    cdef public Py_ssize_t empty
    cdef public unsigned long long payload_bytes
    cdef public bytes command
    cdef public bytes header
    cdef public unsigned long long body_size
    cdef public list parts
    cdef bytearray gathered
    cdef public object sink
    cdef BufferPool pool
    cdef public Py_ssize_t counted

    cpdef clear(self)
    cpdef begin(self, bint discarding, BufferPool pool)
    cpdef follow(self)
    cdef bint add(self, int flags, int segment_type, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cdef add_body(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    cpdef tuple body(self)
