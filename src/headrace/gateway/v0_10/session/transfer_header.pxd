# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport get16, get32, get64
from headrace.wire.property_bits cimport (
    DELIVERY_HAS_DELIVERY_MODE, DELIVERY_HAS_EXCHANGE, DELIVERY_HAS_EXPIRATION,
    DELIVERY_HAS_PRIORITY, DELIVERY_HAS_RESUME_ID, DELIVERY_HAS_RESUME_TTL,
    DELIVERY_HAS_ROUTING_KEY, DELIVERY_HAS_TIMESTAMP, DELIVERY_HAS_TTL,
    MESSAGE_HAS_APPLICATION_HEADERS, MESSAGE_HAS_APP_ID, MESSAGE_HAS_CONTENT_ENCODING,
    MESSAGE_HAS_CONTENT_LENGTH, MESSAGE_HAS_CONTENT_TYPE, MESSAGE_HAS_CORRELATION_ID,
    MESSAGE_HAS_MESSAGE_ID, MESSAGE_HAS_REPLY_TO, MESSAGE_HAS_USER_ID,
)


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
    cdef public tuple publishing_id
    cdef public bytes other_structs
