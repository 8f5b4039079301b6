# SPDX-License-Identifier: Apache-2.0
"""Channels: declare, publish, confirm, consume."""
