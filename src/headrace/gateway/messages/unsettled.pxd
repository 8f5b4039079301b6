# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue.destination cimport Consumer
from headrace.model.queue.ring cimport Ring

cdef Py_ssize_t RING_SLACK

@cython.final
cdef class Unsettled:
    cdef unsigned long long mask
    cdef unsigned long long half
    cdef Ring ring
    cdef public unsigned long long base
    cdef public dict spilled
    cdef public long long count

    @cython.locals(slot_count=Py_ssize_t)
    cpdef add(self, unsigned long long number, Message message)
    @cython.locals(ring=Ring, gap=cython.ulonglong)
    cdef add_gap(self, unsigned long long number)
    cpdef add_spilled(self, unsigned long long number, Message message)
    @cython.locals(ring=Ring, message=Message)
    cdef spill(self, Py_ssize_t slot_count)
    @cython.locals(ring=Ring)
    cdef int trim(self) except -1
    @cython.locals(ring=Ring, index=cython.ulonglong)
    cpdef Message find(self, unsigned long long number)
    @cython.locals(ring=Ring, index=cython.ulonglong, message=Message)
    cpdef Message pop(self, unsigned long long number)
    cpdef list spilled_numbers(self, unsigned long long first, unsigned long long last)
    @cython.locals(number=cython.ulonglong, message=Message)
    cpdef Message pop_first(self, unsigned long long last)
    cpdef list delivery_numbers(self, Consumer consumer, unsigned long long last)
    @cython.locals(ring=Ring, index=Py_ssize_t, message=Message, first=cython.ulonglong, spilled=dict)
    cpdef list entries(self, unsigned long long last)
    cpdef Py_ssize_t slot_count(self) except -1
    @cython.locals(ring=Ring, index=Py_ssize_t, message=Message)
    cpdef list messages(self)
    cpdef clear(self)
