# SPDX-License-Identifier: Apache-2.0
"""A cluster: brokers that share a database, and the virtual hosts that each of them serves.

- `node`: takes and gives up virtual hosts, and knows the owners of the others
- `census`: the brokers that are alive, by their heartbeats
- `assignment`: the broker that should serve each virtual host
- `heartbeat`: this broker's heartbeats, on a thread, and its lease
- `membership`: a broker's entry into a cluster
- `shared_catalog`: joins a data directory to a cluster
- `copies`: copies of the virtual hosts that other brokers serve, kept up to date
- `removals`: removes the ledgers of deleted virtual hosts
- `warnings`: a short lease, differing leases, copies far behind, faults of the database and of
  addresses
"""
