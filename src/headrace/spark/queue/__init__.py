# SPDX-License-Identifier: Apache-2.0
"""Queues as sources: leased, spooled, or a snapshot."""
