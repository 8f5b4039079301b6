# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.pending_confirms cimport PendingConfirms
from headrace.gateway.v0_10.session.context cimport SessionContext

cdef class Batch:
    cdef public unsigned int first
    cdef public unsigned int last
    cdef public unsigned int accept_count
    cdef public object accepted
    cdef public object result
    cdef public bint is_error
    cdef public unsigned long long store_turn
    cdef public unsigned int change

@cython.final
cdef class Completion:
    cdef SessionContext session
    cdef public PendingConfirms pending_confirms
    cdef public Batch batch
    cdef public object batches
    cdef public unsigned int changes
    cdef public object failure

    @cython.locals(session=SessionContext, batch=Batch, number=cython.uint)
    cdef join(self, bint requires_accept)
    @cython.locals(batch=Batch, is_first=cython.bint)
    cpdef close_batch(self)
    cpdef bint complete_when_durable(self, object result=*) except -1
    @cython.locals(batch=Batch)
    cpdef complete_change(self, unsigned int code)
    @cython.locals(session=SessionContext)
    cpdef bint send_result_in_order(self, object result) except -1
    @cython.locals(session=SessionContext, batch=Batch)
    cpdef bint delay_failure(self, object error) except -1
    cpdef end_for_failure(self)
    @cython.locals(session=SessionContext)
    cpdef fail_command(self, object error, unsigned int code, unsigned int command_id)
    @cython.locals(batch=Batch)
    cpdef Batch first_change(self)
    @cython.locals(session=SessionContext, batch=Batch)
    cpdef on_released(self, unsigned long long token)
