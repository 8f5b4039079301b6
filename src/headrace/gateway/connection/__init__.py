# SPDX-License-Identifier: Apache-2.0
"""Parts of the gateway for connections of any version.

- `context`: the parts of the broker that a connection uses
- `client`: the port of a connection of any version
- `offers`: hosts, realms and proxies for clients of other versions than 0-9-1
- `cluster_port`: the port of the cluster, for virtual hosts that other brokers serve
- `connection_events`: events of opening and closing
- `plug_in_state`: state of plug-ins of a connection, channel or session

A login and a renewed secret (connection.update-secret) are kept in `headrace.server.login.login`.
"""
