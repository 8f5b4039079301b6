# SPDX-License-Identifier: Apache-2.0
"""What the store says when it cannot serve at all."""


class StoreError(Exception):
    """A data directory that cannot be used; the text says which, and why."""
