# SPDX-License-Identifier: Apache-2.0
"""Transactions: local, distributed, and staged batches."""
