# SPDX-License-Identifier: Apache-2.0
"""Connections to a virtual host that another broker of the cluster serves.

They pass through this broker, which logs the client in.

preamble   the client's user and address, sent to the other broker under the secret of the cluster
ends       the two sides of a relayed connection, and the beginning of one at the other broker
relays     makes relayed connections, on both brokers
links      requests of operators to the broker that serves a virtual host
"""
