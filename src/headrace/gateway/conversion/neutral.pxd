# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.conversion.neutral_values cimport format_uuid
from headrace.wire.table cimport check_utf8

@cython.final
cdef class Properties:
    cdef public bytes content_type
    cdef public bytes content_encoding
    cdef public list headers
    cdef public object delivery_mode
    cdef public object priority
    cdef public bytes correlation_id
    cdef public bytes correlation_id_text
    cdef public bytes app_id
    cdef public bytes app_id_text
    cdef public bytes user_id
    cdef public bytes reply_exchange
    cdef public bytes reply_key
    cdef public bytes reply_text
    cdef public object ttl_ms
    cdef public bytes expiration_text
    cdef public object expiration
    cdef public bytes message_uuid
    cdef public bytes message_id_text
    cdef public object timestamp_s
    cdef public bytes type
    cdef public bytes cluster_id
    cdef public bytes structs
    cdef public bytes transaction_id
    cdef public bytes security_token

cpdef bint is_text(bytes raw)
cpdef bytes bytes_to_text(bytes raw)
cpdef bytes text_to_bytes(bytes text)
cpdef bytes parse_uuid(bytes text)
