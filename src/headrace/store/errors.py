# SPDX-License-Identifier: Apache-2.0
"""Errors of the store."""


class StoreError(Exception):
    """An unusable data directory or file; the text names it and the reason."""
