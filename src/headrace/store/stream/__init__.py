# SPDX-License-Identifier: Apache-2.0
"""Logs of streams on disk."""
