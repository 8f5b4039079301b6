# SPDX-License-Identifier: Apache-2.0
"""The data directory of a running broker.

- `storage`: its users, and a store for each virtual host
- `unsynced`: changes of definitions that wait for the disk
- `leftovers`: data without a record, and records without data, found at the start
- `backup`: backups of a running broker
- `journal_sums`: sums over all journals
"""
