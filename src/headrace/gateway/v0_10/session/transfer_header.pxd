# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport get16, get32, get64

cdef unsigned int DISCARD_UNROUTABLE
cdef unsigned int IMMEDIATE
cdef unsigned int REDELIVERED
cdef unsigned int PRIORITY
cdef unsigned int DELIVERY_MODE
cdef unsigned int TTL
cdef unsigned int TIMESTAMP
cdef unsigned int EXPIRATION
cdef unsigned int EXCHANGE
cdef unsigned int ROUTING_KEY
cdef unsigned int RESUME_ID
cdef unsigned int RESUME_TTL

cdef class TransferHeader:
    cdef public unsigned int flags
    cdef public unsigned int priority
    cdef public unsigned int delivery_mode
    cdef public unsigned long long ttl_ms
    cdef public unsigned long long timestamp_s
    cdef public unsigned long long expiration
    cdef public bytes routing_key
    cdef public bytes resume_id
    cdef public unsigned long long resume_ttl_ms
    cdef public bytes user_id
    cdef public bint has_headers
    cdef public bint first
    cdef public bint last
    cdef public tuple publishing
    cdef public bytes rest
