# SPDX-License-Identifier: Apache-2.0
"""Connections to a virtual host that another broker of the cluster serves.

They pass through this broker, which logs the client in.

- `relays`: makes relayed connections, on both brokers
- `ends`: the two sides of a relayed connection, and its opening at the serving broker
- `preamble`: the client's user and address, sent to the other broker under the cluster's secret
- `links`: requests of operators to the broker that serves a virtual host
"""
