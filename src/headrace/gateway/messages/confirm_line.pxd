# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.ports cimport Store

@cython.final
cdef class ConfirmLine:
    cdef public Store store
    cdef public object line

    cpdef join(self, object waiter, unsigned long long token)
    @cython.locals(synced=cython.ulonglong)
    cpdef advance(self)
