# SPDX-License-Identifier: Apache-2.0
"""Local and distributed transactions, and staged batches.

- `transaction`, `publishes`: a local transaction, and the publishes of any transaction
- `dtx`, `xid`: distributed transactions: their branches, and the names of branches
- `staged_batch`: branches of many tasks that commit together
"""
