# SPDX-License-Identifier: Apache-2.0
from headrace.protocol.endpoint cimport Endpoint
from headrace.server.net.transport cimport Reactor, Transport

cdef class TlsTransport(Transport):
    cdef public bint full
    cdef public bint gone
