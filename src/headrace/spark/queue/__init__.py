# SPDX-License-Identifier: Apache-2.0
"""Reads of queues: streaming by lease or spool, and batches by snapshot."""
