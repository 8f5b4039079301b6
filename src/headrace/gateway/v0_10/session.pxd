# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.confirm cimport ConfirmLine
from headrace.gateway.route cimport Route, will_last
from headrace.gateway.v0_10.subscription cimport Holder, Subscription, serial_distance
from headrace.gateway.v0_10.transfer_header cimport TransferHeader
from headrace.model.message cimport (
    C_KIND_TRANSFER, C_LARGE, C_PERSISTENT, C_REDELIVERED, Message, new_message,
)
from headrace.model.ports cimport Store
from headrace.model.queue cimport Queue
from headrace.model.served cimport Consumer
from headrace.model.tally cimport Tally
from headrace.protocol.session_0_10 cimport Session as ProtocolSession
from headrace.wire.memory cimport cut, get32, same

cdef Py_ssize_t ROUTES_MAX
cdef unsigned int SERIAL_MASK
cdef int ACCEPT
cdef int REQUEUE

cdef class Batch:
    cdef public unsigned int first
    cdef public unsigned int last
    cdef public object accepted
    cdef public object result

cdef class Session(Holder):
    cdef public object context
    cdef public unsigned int number
    cdef public Tally tally
    cdef public object user
    cdef public object vhost
    cdef public Store store
    cdef public ConfirmLine line
    cdef public bint over
    cdef public dict consumers
    cdef public Queue reply_queue
    cdef public object files
    cdef public object packets
    cdef public list on_end
    cdef public bint selected_tx
    cdef public bint selected_dtx
    cdef bytes args
    cdef bytes header
    cdef public long long until_ms
    cdef public Route route
    cdef public dict routes
    cdef public object fragment
    cdef public bint explicit
    cdef public bint rare
    cdef public tuple publishing
    cdef bytes delivered_header
    cdef bytes prefix
    cdef Py_ssize_t address_len
    cdef unsigned int flags
    cdef bint persistent
    cdef unsigned int priority
    cdef long long ttl_ms
    cdef long long deadline_ms
    cdef unsigned long long timestamp_s
    cdef bint discards
    cdef bint immediate
    cdef public Batch batch
    cdef public object batches
    cdef unsigned long long position

    @cython.locals(tally=Tally, route=Route, refused=cython.int)
    cdef publish(
        self, const unsigned char* d, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, Py_ssize_t body, Py_ssize_t body_end
    )
    @cython.locals(route=Route, refused=cython.int)
    cpdef publish_large(
        self, bytes start, Py_ssize_t args, Py_ssize_t args_end, Py_ssize_t header,
        Py_ssize_t header_end, tuple parts, unsigned long long body_size
    )
    @cython.locals(read=TransferHeader, address=bytes, exchange=bytes, key=bytes,
                   now_ms=cython.longlong)
    cdef Route prepare(self, bytes args, bytes header)
    @cython.locals(route=Route, generation=cython.ulonglong)
    cpdef Route find_route(self, bytes address, bytes exchange, bytes key, bytes rest)
    @cython.locals(tally=Tally, seq=cython.ulonglong, position=cython.ulonglong,
                   refused=cython.int, message=Message, data=bytes, queue=Queue, kept=cython.bint,
                   consumer=Consumer)
    cdef int spread(
        self, Route route, const unsigned char* d, Py_ssize_t body, Py_ssize_t body_end,
        tuple parts, unsigned long long body_size
    ) except -1
    cdef put(
        self, Subscription consumer, const unsigned char* d, Py_ssize_t body, Py_ssize_t body_end
    )
    @cython.locals(queue=Queue, data=bytes, message=Message)
    @cython.locals(lasting=cython.bint, refusing=tuple)
    cdef publish_once(
        self, Route route, tuple number, bytes body, tuple parts, unsigned long long body_size
    )
    cpdef publish_rarely(
        self, Route route, bytes body, tuple parts, unsigned long long body_size
    )
    cdef Message message_of(self, bytes body, tuple parts, unsigned long long body_size)
    @cython.locals(message=Message, queue=Queue)
    cdef int pass_on(
        self, object passage, Route route, bytes body, tuple parts, unsigned long long body_size
    ) except -1
    cpdef object source(self)
    cpdef unroutable(self, int code, str text)
    cpdef turn_away(self, str text)
    cpdef reject(self, int code, str text)
    @cython.locals(batch=Batch, number=cython.uint)
    cdef join_batch(self, bint wants_accept)
    @cython.locals(batch=Batch)
    cpdef close_batch(self)
    cpdef bint later(self, object result=*) except -1
    @cython.locals(batch=Batch)
    cpdef released(self, unsigned long long token)
    @cython.locals(last=cython.uint)
    cdef accept(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    cpdef settle_ranges(self, list ranges, int outcome)
    cdef finish_settling(self)
    cpdef drain_touched(self)
    cpdef forget_browsed(self, unsigned int first, unsigned int last)
    @cython.locals(message=Message, subscription=Subscription)
    cpdef list acquire(self, list ranges)
    cpdef part_again(self)
    cpdef give_back(self, unsigned int first, unsigned int last)
    @cython.locals(subscription=Subscription)
    cpdef refresh_all(self)
    cpdef go_on_flushing(self, Subscription subscription)
    @cython.locals(subscription=Subscription, message=Message, queue=Queue)
    cpdef wind_up(self)
    cpdef leave_queue(self, Queue queue)
