# SPDX-License-Identifier: Apache-2.0
"""The port to an engine with the catalog of a cluster: one value, replaced by compare and set."""

from typing import Protocol

NONE = ""  # The version without a value.


class CatalogChangedError(Exception):
    """Another broker has stored another value since."""


class CatalogEngine(Protocol):
    """An engine with the value; calls block, and come from one thread at a time."""

    def version(self) -> str:
        """Return the version of the value, ``NONE`` without one; each value has another.

        Raises:
            OSError: the engine does not answer.
        """

    def load(self) -> tuple[str, bytes]:
        """Return the version and the value.

        Raises:
            OSError: the engine does not answer.
        """

    def store(self, expected: str, value: bytes) -> str:
        """Replace the value that has a version; return when a majority has it, the new version.

        Raises:
            CatalogChangedError: the value has another version.
            OSError: the value may or may not have been replaced.
        """

    def close(self) -> None:
        """Release the connection."""
