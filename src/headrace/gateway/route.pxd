# SPDX-License-Identifier: Apache-2.0
import cython

@cython.final
cdef class Route:
    cdef public bytes key
    cdef public tuple queues
    cdef public Py_ssize_t count
    cdef public unsigned long long generation
    cdef public bytes queue_ids
    cdef public bint durable
