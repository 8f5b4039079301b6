# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.ports cimport Span, Store

@cython.final
cdef class PendingConfirm:
    cdef unsigned long long position
    cdef object waiter
    cdef object token
    cdef Span span
    cdef bint is_released

@cython.final
cdef class PendingConfirms:
    cdef public Store store
    cdef public object entries
    cdef public bint waiting

    cpdef join(self, object waiter, unsigned long long token)
    @cython.locals(store=Store, span=Span)
    cpdef join_publishes(
        self, object waiter, unsigned long long token, unsigned long long turn, bint is_first
    )
    cdef add(self, object waiter, object token, Span span)
    @cython.locals(synced=cython.ulonglong, entry=PendingConfirm)
    cpdef advance(self)
    @cython.locals(checks=cython.int, entry=PendingConfirm, span=Span, waiting=list, consumed=list)
    cpdef release_consumed(self)
