# SPDX-License-Identifier: Apache-2.0
"""Local and distributed transactions, and staged batches.

- `transaction`, `publishes`: the pending operations of a transaction, and its publishes
- `dtx`, `xid`: transaction branches, and their names
- `staged_batch`: branches of many tasks that commit together
"""
