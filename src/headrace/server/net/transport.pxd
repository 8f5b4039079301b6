# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.pending_confirms cimport PendingConfirms
from headrace.model.queue.queue cimport Queue
from headrace.model.counters cimport Counters
from headrace.protocol.endpoint cimport Endpoint
from headrace.protocol.output cimport BufferPool
from headrace.server.net.watched_socket cimport WatchedSocket
from headrace.wire.memory cimport copy, cut

cdef int SENDS_PER_TURN

cdef class Reactor:
    cdef public object loop
    cdef public object sockets
    cdef public BufferPool pool
    cdef public Counters counters
    cdef public Py_ssize_t read_size
    cdef public bytearray buffer
    cdef public object view
    cdef public list stores
    cdef public list confirm_queues
    cdef public list held
    cdef public list links
    cdef public object alarms
    cdef public bint alarmed
    cdef public dict blocked
    cdef public Py_ssize_t counted_bytes
    cdef public object clock
    cdef public object stopwatch

    @cython.locals(dirty=list, waking=list, connection=Endpoint, confirm_queue=PendingConfirms)
    cpdef turn(self)
    @cython.locals(link=WatchedSocket)
    cpdef flush_links(self)
    @cython.locals(used_bytes=Py_ssize_t)
    cdef count(self)
    cpdef flush_held(self)

cdef class Transport(WatchedSocket):
    cdef public Reactor reactor
    cdef public object sock
    cdef public Endpoint connection
    cdef public object peer
    cdef public object stream
    cdef public bytes unhandled
    cdef public bint held
    cdef public bint watching
    cdef public bint paced
    cdef public int unpaced_reads
    cdef public bint stalled
    cdef public bint waits
    cdef public int blocked_reads
    cdef public int holds
    cdef public bint due
    cdef public bint turn_scheduled
    cdef public bint mid_frame
    cdef public bint frozen
    cdef public Py_ssize_t unfinished
    cdef public bint closing
    cdef public bint closed
    cdef public Queue pace_queue
    cdef public object pace_timer
    cdef public object meters
    cdef public object meter_timer
    cdef public Py_ssize_t chunk_size
    cdef public object close_timer
    cdef public long idle_ticks
    cdef public long quiet_ticks
    cdef public long heartbeat_ticks
    cdef public long handshake_ticks
    cdef public long long since_ms

    cpdef resume_reading(self)
    cpdef pause_reading(self)
    cpdef str name(self)
    @cython.locals(reactor=Reactor, unhandled_len=Py_ssize_t, length=Py_ssize_t)
    cpdef read(self)
    @cython.locals(reactor=Reactor, connection=Endpoint, consumed=Py_ssize_t, queue=Queue)
    cpdef feed(self, bytearray buffer, Py_ssize_t length)
    @cython.locals(connection=Endpoint, counters=Counters, offset=Py_ssize_t, size=Py_ssize_t, consumed=Py_ssize_t,
                   chunk=bytearray, published_before=cython.ulonglong)
    cdef Py_ssize_t feed_metered(self, bytearray buffer, Py_ssize_t length) except -1
    cpdef keep_unhandled(self, bytes data)
    cpdef become(self, Endpoint connection)
    cpdef feed_unhandled(self)
    @cython.locals(unhandled=bytes)
    cpdef handle_unhandled(self)
    cpdef await_turn(self)
    cpdef call_turn(self)
    cpdef start_pacing(self, Queue queue)
    cpdef bint consumes_from(self, Queue queue) except -1
    @cython.locals(queue=Queue)
    cpdef stop_pacing(self)
    cpdef resume_publishing(self)
    cpdef hold(self)
    cpdef unhold(self)
    @cython.locals(reactor=Reactor, connection=Endpoint)
    cpdef block(self)
    cpdef read_once(self)
    cpdef unblock(self)
    cpdef flush(self)
    @cython.locals(connection=Endpoint, _=cython.int, start=Py_ssize_t, end=Py_ssize_t,
                   sent=Py_ssize_t)
    cpdef bint send(self) except -1
    cdef Py_ssize_t send_chain(self) except? -2
    cpdef wait_for_store(self)
    cpdef start_writing(self)
    cpdef stop_writing(self)
    cpdef watch_output(self)
    @cython.locals(connection=Endpoint)
    cpdef write_more(self)
    cpdef freeze(self)
    cpdef thaw(self)
    @cython.locals(connection=Endpoint, start=Py_ssize_t, end=Py_ssize_t, sent=Py_ssize_t)
    cpdef send_unfinished(self)
    cpdef Py_ssize_t send_chunk(self, object chunk) except -1
    cpdef tick_frozen(self)
    cpdef close_soon(self)
    cpdef finish_close(self)
    cpdef end_stream(self)
    cpdef abort(self)
    cpdef close_socket(self)
    cpdef stop_handshake_timer(self)
    cpdef set_heartbeat(self, long interval_s)
    cpdef tick(self)
