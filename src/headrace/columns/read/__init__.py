# SPDX-License-Identifier: Apache-2.0
"""Reads of streams and queues as record batches, with decoded bodies."""
