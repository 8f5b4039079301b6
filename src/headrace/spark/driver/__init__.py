# SPDX-License-Identifier: Apache-2.0
"""Reads of streams, planned in the driver: ranges of batches, partitions and groups."""
