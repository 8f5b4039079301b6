# SPDX-License-Identifier: Apache-2.0
"""Relays: a connection to a virtual host that another broker serves passes through this one.

preamble   who the client is, told to the other broker under the secret of the cluster
ends       the two sides of a relayed connection, and the beginning of one at the other broker
relays     makes relayed connections, on both brokers
"""
