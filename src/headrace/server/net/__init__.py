# SPDX-License-Identifier: Apache-2.0
"""Sockets of clients.

- `listener`, `ports`: accepting connections; the ports and their addresses
- `connection_gate`: limits of connections before their login, by address
- `proxy_header`: the PROXY protocol, which carries the client's address
- `transport`, `tls_transport`: the transport of a connection, plain or with TLS
- `hot_sockets`, `watched_socket`: the event loop, and the sockets that it serves itself
- `client_socket`: a socket with the client's address in place of its peer's
- `tls`: TLS contexts, by server name; `revocation`, `der_certificates`: revoked certificates
- `drain`: closing all connections for maintenance; `freeze`: pausing them after a lost lease
"""
