# SPDX-License-Identifier: Apache-2.0
from headrace.model.message cimport Message

cdef class Span:
    cpdef bint is_consumed(self) except -1

cdef class Store:
    cdef public unsigned long long appended
    cdef public unsigned long long synced
    cdef public unsigned long long last_seq
    cdef public int wake_fd
    cdef public unsigned long long defined_position
    cdef public unsigned long long turn
    cdef public unsigned long long bound_position
    cdef public bint durable
    cdef public bint full
    cdef public object notify
    cdef public list prepared_branches
    cdef public dict facts
    cdef public dict retry_times

    cdef unsigned long long publish(
        self, const unsigned char* data, Py_ssize_t start, Py_ssize_t end, unsigned int address_len,
        unsigned int flags, unsigned int priority, long long deadline_ms, long long arrived_ms,
        unsigned long long seq, unsigned int body_size, bytes queue_ids,
    ) except? 0
    cpdef unsigned long long publish_message(
        self, Message message, long long arrived_ms, bytes queue_ids
    ) except? 0
    cpdef unsigned long long append_returned(
        self, Message message, long long arrived_ms, bytes queue_id
    ) except? 0
    cpdef long long arrival(self, Message message) except? -1
    cpdef settle(self, unsigned int queue_id, unsigned long long seq, unsigned long long position)
    cpdef bind(self)
    cpdef Span span(self)
    cpdef int forget(self, unsigned int queue_id, unsigned long long position) except -2
    cpdef record_delivered(self, unsigned int queue_id, unsigned long long seq)
    cpdef unsigned long long record_count(
        self, unsigned int queue_id, unsigned long long seq, unsigned long long position,
        unsigned int count, unsigned long long due_ms,
    ) except? 0
    cpdef drop(self, unsigned int queue_id, unsigned long long upto_seq)
    cpdef begin(self)
    cpdef commit(self)
    cpdef prepare(self, bytes xid, list publishes, list settles)
    cpdef decide(self, bytes xid, int status, long long decided_ms)
    cpdef fact(self, bytes key, object value)
    cpdef bint is_failing(self) except -1
    cpdef seal_changes(self)
    cpdef bint page_out(self, Message message) except -1
    cpdef load(self, Message message)
    cpdef release(self, Message message)
    cpdef start_write(self)
    cpdef flush_backlog(self)
    cpdef read(self)
    cpdef recover(self)
    cpdef woken(self)
    cpdef store_redelivered(self, marks)
    cpdef close(self)
