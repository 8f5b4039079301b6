# SPDX-License-Identifier: Apache-2.0
"""Channels of 0-8 to 0-9-1: deliveries, consumers, contents."""
