# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.ports cimport Store

cdef unsigned long long RESERVATION

@cython.final
cdef class DeliveryMark:
    cdef Store store
    cdef unsigned int queue_id
    cdef bint records_each
    cdef readonly unsigned long long durable_seq
    cdef readonly unsigned long long pending_seq
    cdef unsigned long long pending_log_position

    cpdef set_records_each(self, bint records_each)
    cdef int reserve(self, unsigned long long seq) except -1
    @cython.locals(durable_seq=cython.ulonglong)
    cdef unsigned long long reserve_for(self, unsigned long long seq) except? 0
