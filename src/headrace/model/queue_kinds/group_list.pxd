# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue.destination cimport Consumer, Destination
from headrace.model.queue_kinds.header_reader cimport HeaderReader
from headrace.model.queue_kinds.ordered cimport OrderedList

cdef Py_ssize_t IDLE_MAX

@cython.final
cdef class Group:
    cdef public object name
    cdef list ready
    cdef public Consumer owner
    cdef public Py_ssize_t unacked
    cdef public unsigned long long listed_seq

cdef class GroupList(OrderedList):
    cdef HeaderReader reader
    cdef Destination queue
    cdef str key
    cdef bint is_shared
    cdef object default_group
    cdef public dict groups
    cdef dict group_by_seq
    cdef dict unacked_groups
    cdef list free_groups
    cdef dict owner_heaps
    cdef dict eager_owners
    cdef dict registered
    cdef dict groups_by_owner
    cdef dict idle_groups
    cdef bint may_be_stale

    cdef int level(self, int priority) except -1
    @cython.locals(group=Group)
    cdef Group find_group(self, Message message)
    @cython.locals(group=Group)
    cdef int push_heap(self, Message message) except -1
    @cython.locals(first=cython.ulonglong, owner=Consumer, heap=list)
    cdef list_group(self, Group group)
    @cython.locals(seq=cython.ulonglong, group=Group, messages=list)
    cdef Group first_group(self, list heap, Consumer owner)
    @cython.locals(heap=list, owned_group=Group)
    cdef Group first_for(self, Consumer consumer, Group free)
    cdef Group get_group(self, Message message)
    @cython.locals(message=Message)
    cdef Message pop_first(self, Group group)
    @cython.locals(group=Group)
    cdef Message pop_heap(self)
    cdef int withdraw(self, Message message) except -1
    cdef Message pop_oldest(self)
    cdef int reinsert(self, Message message) except -1
    @cython.locals(group=Group)
    cdef int on_removal(self, Message message) except -1
    @cython.locals(group=Group)
    cdef sweep(self)
    @cython.locals(group=Group)
    cdef int clear_heap(self) except -1
    @cython.locals(oldest=Group)
    cdef end_group(self, Group group)
    @cython.locals(owned_groups=dict, owner=Consumer)
    cdef bind_group(self, Group group, Consumer consumer)
    @cython.locals(owner=Consumer)
    cdef int free_group(self, Group group) except -1
    @cython.locals(owned_groups=dict)
    cdef int disown(self, Group group, Consumer owner) except -1
    @cython.locals(group=Group)
    cdef int assign(self, Message message, Consumer consumer) except -1
    @cython.locals(group=Group, owner=Consumer)
    cdef unassign(self, Message message)
    @cython.locals(group=Group)
    cpdef object group_state(self, Message message)
    cdef add_consumer(self, Consumer consumer)
    @cython.locals(group=Group)
    cdef remove_consumer(self, Consumer consumer)
