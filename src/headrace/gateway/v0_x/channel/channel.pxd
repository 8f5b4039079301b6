# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.pending_confirms cimport PendingConfirms
from headrace.gateway.messages.unsettled cimport Unsettled
from headrace.gateway.conversion.convert cimport Converter
from headrace.gateway.v0_x.peer cimport Peer
from headrace.gateway.v0_x.channel.consumer cimport BasicConsumer, GetConsumer
from headrace.gateway.v0_x.channel.deliveries cimport Deliveries
from headrace.model.message cimport Message
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.destination cimport Consumer, Destination
from headrace.model.tallies cimport ChannelTally

cdef enum:
    C_ACCEPT = 0
    C_REQUEUE = 1
    C_ANSWER_NACK = 0x4000000000000000  # A shift would be one of C int.

cdef class Channel(Deliveries):
    cdef public dict overdue
    cdef public long long consumer_prefetch
    cdef public dict get_consumers
    cdef public Converter converter
    cdef public str last_queue
    cdef public Queue reply_queue
    cdef public bint confirms
    cdef public bint is_unflushed
    cdef public bint tx
    cdef public bint dtx
    cdef public unsigned long long publish_seq
    cdef public unsigned long long confirmed_seq
    cdef public unsigned long long queued_seq
    cdef public unsigned long long store_turn
    cdef public list tx_publishes
    cdef public dict tx_settles
    cdef public long long tx_bytes
    cdef public object transaction
    cdef public dict plug_ins
    cdef public list deferred_confirms

    cpdef ChannelTally update_tally(self)
    cpdef bint is_unsettled(self, unsigned long long tag) except -1
    cpdef check_tag(self, unsigned long long tag)
    cpdef settle(self, unsigned long long tag, bint multiple, int outcome)
    @cython.locals(message=Message, consumer=Consumer)
    cpdef settle_one(self, unsigned long long tag, int outcome)
    @cython.locals(unsettled=Unsettled, message=Message, consumer=Consumer, last=Consumer)
    cpdef settle_range(self, unsigned long long tag, int outcome)
    @cython.locals(queue=Destination, inner=cython.bint)
    cdef int apply_outcome(self, Message message, Consumer consumer, int outcome) except -1
    cdef int release_credit(self, BasicConsumer consumer) except -1
    cpdef unpark_consumers(self, Consumer consumer)
    cdef settle_in_transaction(self, unsigned long long tag, bint multiple, int outcome)
    @cython.locals(message=Message, queue=Destination, tag=cython.ulonglong)
    cpdef requeue_overdue(self, Consumer consumer, unsigned long long last)
    cdef settle_overdue(self, unsigned long long tag)
    @cython.locals(consumer=BasicConsumer)
    cdef BasicConsumer release_overdue(self, unsigned long long tag)
    @cython.locals(message=Message, consumer=Consumer, entries=list)
    cpdef list pop_unsettled(self)
    @cython.locals(queue=Destination, message=Message, consumer=Consumer)
    cpdef requeue_all(self)
    cdef int record_publish(self) except -1
    cpdef nack_publish(self)
    @cython.locals(is_first=cython.bint)
    cpdef flush_confirms(self)
    cpdef on_released(self, unsigned long long token)
