# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_PAGED, Message
from headrace.model.queue.destination cimport C_NEVER, C_NO_ROOM, Consumer, ConsumerRound
from headrace.model.queue_kinds.group_list cimport Group, GroupList
from headrace.model.queue_kinds.inspecting cimport InspectingQueue

cdef Py_ssize_t PASSED_MAX

cdef class GroupedQueue(InspectingQueue):
    cdef public GroupList group_list

    cpdef set_up(self, dict arguments)
    cpdef object group_state(self, Message message)
    cpdef int enqueue(self, Message message) except -1
    cpdef bint restore_unacked(self, Message message) except -1
    @cython.locals(message=Message)
    cpdef Message get(self, Consumer getter)
    @cython.locals(group=Group)
    cpdef bint acquire(self, Message message, Consumer consumer) except -1
    @cython.locals(group=Group)
    cpdef bint acquire_quietly(self, Message message, Consumer consumer) except -1
    cpdef drain(self)
    @cython.locals(groups=GroupList, consumers=ConsumerRound, passed=list, group=Group,
                   consumer=Consumer, message=Message, verdict=cython.int)
    cdef int deliver_groups(self) except -1
    @cython.locals(consumer=Consumer)
    cdef int close_all(self) except -1
    @cython.locals(message=Message)
    cdef Message pop_first(self, Group group)
    @cython.locals(consumer=Consumer, eager_owners=dict)
    cdef Consumer pick_eager(self)
    cdef activate(self, Consumer consumer)
    cpdef add_consumer(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)
