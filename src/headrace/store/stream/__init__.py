# SPDX-License-Identifier: Apache-2.0
"""Logs of streams on disk.

- `log`: the log of a stream: append, retention, transactions
- `lease_log`: the log of a lease, from which settled messages are removed
- `reader`, `index`: reading from any offset; positions by offset, time and bytes
- `files`: the segments' files, written with the groups of the journal
- `recovery`, `scan`: reading the segments at a start; reading one segment
- `offloading`: moving segments to an object store
"""
