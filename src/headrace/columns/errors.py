# SPDX-License-Identifier: Apache-2.0
"""Errors of streams and groups that are read."""

from __future__ import annotations


class DataLossError(RuntimeError):
    """Records that the query should read next are no longer in the stream."""


class ArchiveError(RuntimeError):
    """An archive cannot be read, or lacks records that were to be read from it."""


class GroupInUseError(RuntimeError):
    """Another live query has the group."""


class StreamMissingError(RuntimeError):
    """The stream does not exist."""


def missing(stream: str) -> StreamMissingError:
    """Return the error for a stream that does not exist."""
    return StreamMissingError(
        f"option 'stream': the broker has no stream {stream!r} in this virtual host; a stream is a "
        "queue declared with x-queue-type=stream"
    )


class RegistryError(RuntimeError):
    """A schema registry cannot be asked, refuses, or answers with something else."""
