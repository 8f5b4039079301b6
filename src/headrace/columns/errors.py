# SPDX-License-Identifier: Apache-2.0
"""Errors of reads: of streams, groups, archives and schema registries."""

from __future__ import annotations


class DataLossError(RuntimeError):
    """The stream no longer has the records that the query would read next."""


class ArchiveError(RuntimeError):
    """An archive cannot be read, or lacks records of the read."""


class GroupInUseError(RuntimeError):
    """Another running query owns the group."""


class StreamMissingError(RuntimeError):
    """The stream does not exist."""


def missing_stream_error(stream: str) -> StreamMissingError:
    """Return the error for a stream that does not exist."""
    return StreamMissingError(
        f"option 'stream': the broker has no stream {stream!r} in this virtual host; a stream is a "
        "queue declared with x-queue-type=stream"
    )


class RegistryError(RuntimeError):
    """A schema registry cannot be reached, refuses a request, or returns an invalid answer."""
