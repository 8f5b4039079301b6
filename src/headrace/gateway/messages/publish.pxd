# SPDX-License-Identifier: Apache-2.0

cdef class Publish:
    cdef public bint persistent
    cdef public unsigned int priority
    cdef public long long deadline_ms
    cdef public unsigned int flags
    cdef public Py_ssize_t address_len
    cdef public unsigned long long body_size
    cdef public tuple parts
