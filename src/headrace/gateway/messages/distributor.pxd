# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.route cimport Route, survives_crash
from headrace.model.counters cimport C_SMALLEST_MAX, Counters
from headrace.model.message cimport C_KIND_MASK, C_LARGE, C_PERSISTENT, Message, new_message
from headrace.model.ports cimport Store
from headrace.model.queue.destination cimport Consumer
from headrace.model.queue.queue cimport Queue
from headrace.protocol.endpoint cimport Endpoint
from headrace.protocol.output cimport C_SHARE_MIN
from headrace.wire.memory cimport cut

cdef class Publish:
    cdef public bint persistent
    cdef public unsigned int priority
    cdef public long long deadline_ms
    cdef public unsigned int flags
    cdef public Py_ssize_t address_len
    cdef public unsigned long long body_size
    cdef public tuple parts

cdef class Distributor:
    cdef public Endpoint endpoint
    cdef public Counters counters
    cdef public Store store
    cdef public object vhost
    cdef public unsigned int number
    cdef public bint is_verbatim
    cdef public unsigned long long position

    cdef bytes message_data(
        self, Publish publish, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end
    )
    cdef bint put(
        self, Publish publish, Consumer consumer, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end
    ) except -1
    @cython.locals(counters=Counters, seq=cython.ulonglong, position=cython.ulonglong,
                   refused=cython.int, message=Message, data=bytes, queue=Queue, is_journaled=cython.bint,
                   consumer=Consumer, is_large=cython.bint)
    cdef int distribute(
        self, Publish publish, Route route, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end
    ) except -1
    @cython.locals(message=Message)
    cdef Message make_message(self, Publish publish, bytes data)
    @cython.locals(queue=Queue)
    cpdef int intercept(
        self, Publish publish, Route route, tuple queues, bytes data, tuple publishing_id, object source,
        bint in_transaction,
    ) except -1
    @cython.locals(queue=Queue, is_durable=cython.bint, own_transaction=cython.bint)
    cdef int publish_once(
        self, Publish publish, Route route, tuple publishing_id, const unsigned char* buffer, Py_ssize_t start,
        Py_ssize_t end, bint in_transaction,
    ) except -1
    cpdef count_routed(self, Route route, Py_ssize_t queues)
    cdef pace(self, Queue queue)

@cython.locals(queue=Queue)
cpdef tuple ready_queues(tuple queues)
