# SPDX-License-Identifier: Apache-2.0
"""The port to an engine that stores the catalog of a cluster: one value, replaced atomically."""

from typing import Protocol

NONE = ""  # The version if the engine has no value.


class CatalogChangedError(Exception):
    """The catalog has another version, because another broker has replaced it."""


class CatalogEngine(Protocol):
    """An engine that stores the catalog; calls block, from one thread at a time."""

    def version(self) -> str:
        """Return the version of the value, which no other value has; ``NONE`` if there is no value.

        Raises:
            OSError: the engine does not answer.
        """

    def load(self) -> tuple[str, bytes]:
        """Return the version and the value.

        Raises:
            OSError: the engine does not answer.
        """

    def store(self, expected: str, value: bytes) -> str:
        """Replace the value if it has the expected version; return the new version.

        Returns when a majority of the engine's disks has the new value.

        Raises:
            CatalogChangedError: the value has another version.
            OSError: the value may or may not have been replaced.
        """

    def close(self) -> None:
        """Release the connection."""
