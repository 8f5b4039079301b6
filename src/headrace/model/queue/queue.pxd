# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_PAGED, Message
from headrace.model.queue.ready_list cimport STALE_MIN, Places
from headrace.model.queue.ring cimport Ring
from headrace.model.queue.dispatch cimport Consumer, Cursor, ServedMessages
from headrace.model.counters cimport C_MESSAGE_OVERHEAD

cdef long long LOOKS_MAX
cdef long long PAGED_LOOKS
cdef long long LOOK_OCTETS
cdef long long LOOK_PAUSE_MS
cdef unsigned long long NO_SEQ

cdef class Queue(ServedMessages):
    cdef public bint auto_delete
    cdef public object exclusive_owner
    cdef public dict arguments
    cdef public str realm
    cdef public bint is_hidden
    cdef public str access_name
    cdef public long long expires_ms
    cdef list resting
    cdef public int closing
    cdef public object view
    cdef public dict lanes

    cpdef add_consumer(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)
    cpdef start_filtering(self, Consumer consumer)
    cpdef Cursor new_cursor(self, Consumer consumer)
    @cython.locals(consumer=Consumer, message=Message)
    cdef int drain_selective(self) except -1
    @cython.locals(other=Consumer, verdict=cython.int)
    cdef Consumer choose(self, Consumer consumer, Message message)
    @cython.locals(cursor=Cursor, message=Message, paged=cython.bint, verdict=cython.int)
    cdef Message seek(self, Consumer consumer)
    @cython.locals(looks=cython.longlong)
    cdef long long trouble(self, Message message, bint paged) except -1
    cdef int judge(self, Consumer consumer, Message message) except -1
    cdef bint selects(self, object selector, Message message) except -1
    @cython.locals(level=cython.int)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    @cython.locals(consumer=Consumer)
    cdef rest(self, Cursor cursor, bint complete)
    @cython.locals(consumer=Consumer)
    cdef end_closing(self)
    cpdef add_browser(self, Consumer consumer)
    @cython.locals(cursor=Cursor)
    cpdef browse_from(self, Consumer consumer, unsigned long long position)
    @cython.locals(c=Cursor)
    cpdef remove_browser(self, Consumer consumer)
    @cython.locals(cursor=Cursor)
    cdef show_all(self)
    @cython.locals(consumer=Consumer, message=Message, paged=cython.bint, verdict=cython.int,
                   home=Queue)
    cdef show(self, Cursor cursor)
    cpdef present(self, Consumer consumer, Message message)
    @cython.locals(ahead=list, level=cython.int, seen=cython.ulonglong, found=Message, ring=Ring,
                   at=Py_ssize_t, message=Message, back=cython.int, seq=cython.ulonglong,
                   ready=cython.bint, fresh=cython.bint)
    cdef Message following(self, Cursor cursor)
    @cython.locals(octets=cython.longlong, message=Message)
    cpdef list coming(self, Cursor cursor, unsigned long long end, long long octets_max)
    @cython.locals(cursor=Cursor)
    cdef notify_cursors(self, tuple entry)
    cdef add_ahead(self, Cursor cursor, tuple entry)
    cpdef long long message_count(self) except -1
    @cython.locals(lane=Queue, count=cython.longlong)
    cpdef long long lanes_ready(self) except -1
    @cython.locals(lane=Queue, count=Py_ssize_t)
    cpdef Py_ssize_t consumer_count(self) except -1
    @cython.locals(lane=Queue, count=cython.longlong, held=cython.longlong, dropped=cython.bint)
    cpdef long long purge(self) except -1
    @cython.locals(lane=Queue)
    cpdef retire(self)
    @cython.locals(lane=Queue, count=cython.longlong)
    cpdef long long destroy(self) except -1
    @cython.locals(consumers=list, consumer=Consumer, cursor=Cursor)
    cdef dismiss(self)
