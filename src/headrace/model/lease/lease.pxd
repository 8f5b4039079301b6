# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.lease.log cimport pack_record, unpack_record
from headrace.model.message cimport C_GONE, C_KIND_MASK, C_PERSISTENT, C_REDELIVERED, Message
from headrace.model.ports cimport Store
from headrace.model.queue.queue cimport Queue
from headrace.model.stream.stream cimport Stream
from headrace.model.stream.log cimport StreamLog

cdef long long SLICE_SIZE
cdef Py_ssize_t READ_SIZE

cdef class Lease(Stream):
    cdef public Queue source
    cdef public str group
    cdef public object raw_log
    cdef public unsigned long long settled

    cpdef int enqueue(self, Message message) except -1
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    @cython.locals(source=Queue, log=StreamLog, store=Store, before=cython.longlong,
                   count=cython.longlong, size=cython.longlong, now_ms=cython.longlong,
                   message=Message, data=bytes, arrived_ms=cython.longlong, full=cython.bint)
    cpdef tuple lease_some(self, long long messages_max, long long bytes_max, bint at_least_one)
    cpdef bytes join_parts(self, Message message)
    @cython.locals(source=Queue, offset=cython.ulonglong, raw=bytes, address_len=Py_ssize_t,
                   body_size=Py_ssize_t, arrived_ms=cython.longlong, message=Message,
                   count=cython.longlong)
    cpdef long long return_some(self, unsigned long long upto) except -1
