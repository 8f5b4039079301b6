# SPDX-License-Identifier: Apache-2.0
import cython

cdef enum:
    C_PERSISTENT = 1
    C_REDELIVERED = 2
    C_PAGED = 4
    C_SCRATCH = 8
    C_GONE = 16
    C_LARGE = 32
    C_KIND_MASK = 0xC0
    C_KIND_BASIC = 0
    C_KIND_TRANSFER = 64
    C_KIND_FILE = 128
    C_KIND_STREAM = 192

@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Message:
    cdef public bytes data
    cdef public tuple parts
    cdef public object consumer
    cdef public long long deadline_ms
    cdef public unsigned long long seq
    cdef public unsigned long long position
    cdef public unsigned int body_size
    cdef public unsigned int publisher
    cdef public unsigned short address_len
    cdef public unsigned char flags
    cdef public unsigned char priority
    cdef public unsigned char deliveries
    cdef public unsigned short header_units

@cython.locals(message=Message)
cpdef Message new_message(bytes data, unsigned int address_len, unsigned int body_size)
@cython.locals(message_copy=Message)
cpdef Message copy_message(Message message)
cpdef int measure(Message message) except -1
@cython.locals(size=cython.longlong)
cdef int units(bytes data, unsigned int body_size) except -1
