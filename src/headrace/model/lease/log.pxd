# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport (
    C_KIND_MASK, C_PERSISTENT, C_REDELIVERED, Message, new_message,
)
from headrace.model.queue.destination cimport Consumer
from headrace.model.stream.log cimport StreamLog
from headrace.model.counters cimport C_MESSAGE_OVERHEAD

cdef enum:
    C_TAIL = 24

@cython.locals(flags=cython.int)
cpdef bytes pack_record(Message message, bytes data)
@cython.locals(tail_offset=Py_ssize_t, message=Message)
cpdef Message unpack_record(bytes raw, Py_ssize_t address_len, Py_ssize_t body_size)
@cython.locals(rendered=list, raw=bytes, address_len=Py_ssize_t, body_size=Py_ssize_t, tail_offset=Py_ssize_t,
               data=bytes)
cpdef list render_records(list entries, object render)

cdef class LeaseLog(StreamLog):
    cdef public object render

    cpdef list read(self, unsigned long long offset, Py_ssize_t bytes_max)
    @cython.locals(data=bytes, address_len=Py_ssize_t)
    cpdef unsigned long long deliver_records(
        self, unsigned long long offset, unsigned long long end, Consumer consumer
    ) except? 0
    cpdef list read_raw(self, unsigned long long offset, Py_ssize_t bytes_max)
    @cython.locals(count=cython.longlong, size=cython.longlong)
    cpdef forget_below(self, unsigned long long offset, unsigned long long position)
