# SPDX-License-Identifier: Apache-2.0
cdef enum:
    C_INLINE_BODY_MAX = 65536
    C_DETACHED = 0
    C_ATTACHING = 1
    C_ATTACHED = 2
    C_DETACHING = 3

cdef unsigned int SERIAL_MASK

# The connection cimports what stands above: it is declared first.
cdef class SessionPort

from headrace.protocol.v0_10.session_connection cimport SessionConnection

cdef class SessionPort:
    cdef public bytes name
    cdef public SessionConnection connection
    cdef public unsigned int channel
    cdef public int state
    cdef public bint ended
    cdef public object error
    cdef public bint takes_fast_path
    cdef public unsigned int next_in
    cdef public unsigned int cursor
    cdef public unsigned int command_id
    cdef public bint sync
    cdef public bint has_unreported
    cdef public bint is_listed

    cpdef announce_later(self)
    cpdef send_completed(self)
    cpdef assign_number(self, bint sync)
    cpdef complete(self, unsigned int number)
    cdef command_frame(self, int flags, int segment_type, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    cdef completed_frame(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
