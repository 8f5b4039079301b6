# SPDX-License-Identifier: Apache-2.0
"""Errors of the store."""


class StoreError(Exception):
    """A data directory that cannot be used; the text says which, and why."""
