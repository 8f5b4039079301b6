# SPDX-License-Identifier: Apache-2.0
"""What the model refuses, and why. A gateway turns these into the errors of its protocol."""


class ModelError(Exception):
    """A request that the model refuses; ``text`` is for the client."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class NotFound(ModelError):
    """There is no such exchange, queue or binding."""


class PreconditionFailed(ModelError):
    """The thing exists, but not as the client assumes."""


class InvalidArgument(PreconditionFailed):
    """An argument of a declaration has a wrong type or value."""


class NotUnderstood(InvalidArgument):
    """An argument of a declaration means nothing to this broker."""


class LimitReached(PreconditionFailed):
    """It would be more than an operator allows."""


class NotRecorded(PreconditionFailed):
    """It could not be noted who does this, and must be."""


class ResourceLocked(ModelError):
    """The queue belongs to another connection."""


class AccessRefused(ModelError):
    """The client may not do this."""


class NotAllowed(ModelError):
    """Nobody may do this."""


class CommandInvalid(ModelError):
    """The request makes no sense to this broker, such as an unknown type of exchange."""


class ResourceError(ModelError):
    """The broker lacks what the request needs, such as room on its disk."""


class NotImplementedHere(ModelError):
    """The request makes sense, but is not served."""


class IllegalState(ModelError):
    """The request is no part of what may happen now, such as ending what was not started."""
