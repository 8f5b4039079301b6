# SPDX-License-Identifier: Apache-2.0
"""Streams: numbered records that stay, and the positions of their readers."""
