# SPDX-License-Identifier: Apache-2.0
"""Ledgers: journals of virtual hosts that an engine replicates.

- `port`: the port to an engine; `entry`: the format of entries
- `replicated_disk`: a disk whose changes are entries first; `applied`: how far its files are
- `passing_disk`: its base; `object_files`: bodies of file messages, which are objects
- `members`: rows of brokers and ledgers
- `postgres`, `postgres_objects`, `postgres_catalog`, `postgres_members`: the engine PostgreSQL
- `postgres_access`, `postgres_session`: sessions with deadlines
- `postgres_cluster`, `postgres_schema`: checks of a server, and its tables
"""
