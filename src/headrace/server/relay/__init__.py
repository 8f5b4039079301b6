# SPDX-License-Identifier: Apache-2.0
"""Relays: processes that own the sockets of a broker's clients, and terminate their TLS.

- `processes`: the broker's part: starts the processes and gives them clients
- `link`: the broker's end of a stream, and the transports of the connections in it
- `frames`: the frames between a relay process and its broker
- `process`: the program of a relay process, ``python -m headrace.server.relay.process``
- `pump`: its work: bytes between clients' sockets and the stream of frames
- `tls_facts`: versions, ciphers and certificates of clients, sent to the broker

Connections that pass to another broker of a cluster are in :mod:`headrace.server.cluster_relay`.
"""
