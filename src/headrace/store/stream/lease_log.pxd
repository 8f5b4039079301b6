# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.lease.log cimport C_TAIL, render_records
from headrace.store.journal.journal cimport Journal
from headrace.store.stream.log cimport DiskStreamLog

cdef class DiskLeaseLog(DiskStreamLog):
    cdef public object render
    cdef public unsigned long long floor
    cdef public object pending_floors

    cpdef list read(self, unsigned long long offset, Py_ssize_t bytes_max)
    cpdef list read_raw(self, unsigned long long offset, Py_ssize_t bytes_max)
    cpdef forget_below(self, unsigned long long offset, unsigned long long position)
    cpdef trim(self, long long now_ms)
