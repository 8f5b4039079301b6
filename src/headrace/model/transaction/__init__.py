# SPDX-License-Identifier: Apache-2.0
"""Local and distributed transactions, and staged batches."""
