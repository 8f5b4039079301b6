# SPDX-License-Identifier: Apache-2.0
"""Errors of the model; a gateway translates them to errors of its protocol."""


class ModelError(Exception):
    """A request that the model refuses; ``text`` is for the client."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class NotFound(ModelError):
    """The exchange, queue or binding does not exist."""


class PreconditionFailed(ModelError):
    """The object exists with other properties than the client assumes."""


class InvalidArgument(PreconditionFailed):
    """An argument of a declaration has an invalid type or value."""


class NotUnderstood(InvalidArgument):
    """An argument of a declaration is unknown to this broker."""


class LimitReached(PreconditionFailed):
    """A limit set by an operator would be exceeded."""


class NotRecorded(PreconditionFailed):
    """The change must be audited, and the audit log cannot be written."""


class ResourceLocked(ModelError):
    """The queue is exclusive to another connection."""


class AccessRefused(ModelError):
    """The client lacks the permission."""


class NotAllowed(ModelError):
    """The request is forbidden to every client."""


class CommandInvalid(ModelError):
    """The request is meaningless here, such as an unknown exchange type."""


class ResourceError(ModelError):
    """A resource is exhausted, such as disk space."""


class NotImplementedHere(ModelError):
    """The request is valid, but not supported."""


class IllegalState(ModelError):
    """The request does not fit the current state, such as an end without a start."""
