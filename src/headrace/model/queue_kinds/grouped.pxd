# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_PAGED, Message
from headrace.model.queue_kinds.ordered cimport OrderedQueue
from headrace.model.queue.ready_list cimport STALE_MIN
from headrace.model.queue.dispatch cimport Consumer

cdef Py_ssize_t IDLE_MAX
cdef Py_ssize_t PASSED_MAX

@cython.final
cdef class Group:
    cdef public object name
    cdef list line
    cdef public Consumer owner
    cdef public Py_ssize_t held
    cdef public unsigned long long listed

cdef class GroupedQueue(OrderedQueue):
    cdef public str key
    cdef public bint shared
    cdef public dict groups
    cdef dict group_of
    cdef dict holding
    cdef list free
    cdef dict owned
    cdef dict eager
    cdef dict alive
    cdef bint dirty
    cdef dict owns
    cdef dict idle
    cdef object otherwise

    cdef int level(self, int priority) except -1
    @cython.locals(group=Group)
    cdef Group find_group(self, Message message)
    @cython.locals(group=Group)
    cdef line_up(self, Message message)
    @cython.locals(first=cython.ulonglong, owner=Consumer, heap=list)
    cdef list_group(self, Group group)
    @cython.locals(seq=cython.ulonglong, group=Group, line=list)
    cdef Group first_group(self, list heap, Consumer owner)
    @cython.locals(message=Message)
    cdef Message take_first(self, Group group)
    @cython.locals(group=Group)
    cdef Message next_in_line(self)
    @cython.locals(group=Group)
    cdef sweep(self)
    @cython.locals(group=Group)
    cdef clear_line(self)
    @cython.locals(oldest=Group)
    cdef end_group(self, Group group)
    @cython.locals(owns=dict, owner=Consumer)
    cdef bind_group(self, Group group, Consumer consumer)
    @cython.locals(owner=Consumer)
    cdef free_group(self, Group group)
    @cython.locals(owns=dict)
    cdef disown(self, Group group, Consumer owner)
    @cython.locals(group=Group)
    cdef keep(self, Message message, Consumer consumer)
    @cython.locals(group=Group, owner=Consumer)
    cdef let_go(self, Message message)
    @cython.locals(group=Group)
    cpdef object standing(self, Message message)
    cpdef int enqueue(self, Message message) except -1
    cpdef bint restore_unacked(self, Message message) except -1
    @cython.locals(message=Message)
    cpdef Message get(self, Consumer getter)
    @cython.locals(group=Group)
    cpdef bint acquire(self, Message message, Consumer consumer) except -1
    cpdef long long expire(self, long long now_ms) except -1
    cdef reinsert(self, Message message)
    @cython.locals(group=Group)
    cpdef remove(self, Message message)
    cpdef drain(self)
    @cython.locals(passed=list, group=Group, own=Group, consumer=Consumer, heap=list,
                   message=Message, verdict=cython.int)
    cdef hand_out(self)
    @cython.locals(consumer=Consumer)
    cdef close_all(self)
    @cython.locals(message=Message)
    cdef Message take_of(self, Group group)
    @cython.locals(consumer=Consumer)
    cdef Consumer pick_eager(self)
    cdef activate(self, Consumer consumer)
    cpdef add_consumer(self, Consumer consumer)
    @cython.locals(group=Group)
    cpdef remove_consumer(self, Consumer consumer)
