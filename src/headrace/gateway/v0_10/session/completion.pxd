# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.confirm_line cimport ConfirmLine
from headrace.gateway.v0_10.session.subscription cimport Holder
from headrace.model.ports cimport Store
from headrace.model.counters cimport Counters

cdef class Batch:
    cdef public unsigned int first
    cdef public unsigned int last
    cdef public object accepted
    cdef public object result
    cdef public bint is_error
    cdef public unsigned int change

cdef class Batcher(Holder):
    cdef public object context
    cdef public unsigned int number
    cdef public Counters counters
    cdef public object user
    cdef public object vhost
    cdef public Store store
    cdef public ConfirmLine line
    cdef public bint over
    cdef public Batch batch
    cdef public object batches
    cdef public unsigned int changes
    cdef public object failure

    @cython.locals(batch=Batch, number=cython.uint)
    cdef join_batch(self, bint wants_accept)
    @cython.locals(batch=Batch)
    cpdef close_batch(self)
    cpdef bint later(self, object result=*) except -1
    @cython.locals(batch=Batch)
    cpdef promise(self, unsigned int code)
    cpdef bint tell_result(self, object result) except -1
    @cython.locals(batch=Batch)
    cpdef bint fail_later(self, object error) except -1
    cpdef tell_failure(self)
    @cython.locals(batch=Batch)
    cpdef released(self, unsigned long long token)
