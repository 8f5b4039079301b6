# SPDX-License-Identifier: Apache-2.0
"""Durable storage: a data directory with a journal for each virtual host.

- `journal`: messages, settlements, definitions and transactions of a virtual host
- `segment`: the files of records that journals and streams consist of; groups and their sync
- `stream`: logs of streams
- `offload`: segments of streams in an object store
- `file_bodies`: bodies of file messages
- `catalog`: users, permissions and parameters in SQLite; definitions in the journal
- `ledger`: journals that PostgreSQL replicates
- `backup`: backups, and dry runs of a start
- `data_directory`, `mark`: the directory, its lock and version; its file ``mark``
- `disk`: all system calls on files; `replacement` of a file that the disk failed to write
- `catalog_port`: the port to an engine with the catalog of a cluster
- `snapshot`: the files of a virtual host as of one moment
- `errors`: the error of an unusable directory
"""
