# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.model.ports cimport Span, Store
from headrace.store.segment.segment cimport Segment

@cython.final
cdef class SegmentSpan(Span):
    cdef Store store
    cdef Segment segment
    cdef unsigned int first
    cdef unsigned int end
    cdef unsigned long long appended
