# SPDX-License-Identifier: Apache-2.0
"""A cluster: brokers that share a database, and the virtual hosts that each of them serves.

census          which brokers live, by their heartbeats
assignment      which broker should serve which virtual host
heartbeat       this broker's heartbeats, on a thread, and its lease
membership      how a broker joins a cluster and leaves it
shared_catalog  makes a data directory one of a cluster
warnings        leases that are short or differ, copies far behind, faults of the database and of
                addresses
removals        removes the ledgers of deleted virtual hosts
copies          copies of what other brokers serve, kept up to date
node            takes and gives up virtual hosts, and knows the owners of the others
"""
