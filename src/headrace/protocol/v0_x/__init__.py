# SPDX-License-Identifier: Apache-2.0
"""Connections and channels of 0-8, 0-9 and 0-9-1."""
