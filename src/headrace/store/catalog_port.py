# SPDX-License-Identifier: Apache-2.0
"""The port to an engine with the catalog of a cluster: one value, replaced by compare and set."""

from typing import Protocol

NONE = ""  # The version without a value.


class CatalogChangedError(Exception):
    """The catalog has another version: another broker has replaced it."""


class CatalogEngine(Protocol):
    """An engine that stores the catalog; calls block, from one thread at a time."""

    def version(self) -> str:
        """Return the version of the value; ``NONE`` without a value.

        Each value has a version of its own.

        Raises:
            OSError: the engine does not answer.
        """

    def load(self) -> tuple[str, bytes]:
        """Return the version and the value.

        Raises:
            OSError: the engine does not answer.
        """

    def store(self, expected: str, value: bytes) -> str:
        """Replace the value that has the expected version; return the new version.

        Returns when a majority of the engine's disks has the new value.

        Raises:
            CatalogChangedError: the value has another version.
            OSError: the value may or may not have been replaced.
        """

    def close(self) -> None:
        """Release the connection."""
