# SPDX-License-Identifier: Apache-2.0
"""Leases: ranges of a queue's messages, read by a group."""
