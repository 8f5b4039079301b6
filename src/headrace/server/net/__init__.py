# SPDX-License-Identifier: Apache-2.0
"""Sockets of clients.

- `listener`, `ports`: accepting connections; the ports and their addresses
- `connection_gate`: limits of connections before their login, by address
- `proxy_header`: the PROXY protocol, which names the client
- `transport`, `tls_transport`: a connection, plain or with TLS
- `hot_sockets`, `watched_socket`: the event loop, and the sockets that it serves itself
- `client_socket`: a socket with the client's address in place of its peer's
- `tls`: contexts and names of certificates; `revocation`, `der_certificates`: revoked ones
- `drain`, `freeze`: maintenance; a lost lease of a cluster
"""
