# SPDX-License-Identifier: Apache-2.0
"""Leases: ranges of a queue's messages, held by groups of readers."""
