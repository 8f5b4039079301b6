# SPDX-License-Identifier: Apache-2.0
"""Translation of the model's errors to errors of 0-8 to 0-9-1."""

from __future__ import annotations

from headrace.model.errors import (
    AccessRefused,
    CommandInvalid,
    IllegalState,
    InvalidArgument,
    ModelError,
    NotAllowed,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    ResourceError,
    ResourceLocked,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

CODES: dict[type[ModelError], ReplyCode] = {
    AccessRefused: ReplyCode.ACCESS_REFUSED,
    CommandInvalid: ReplyCode.COMMAND_INVALID,
    IllegalState: ReplyCode.PRECONDITION_FAILED,
    InvalidArgument: ReplyCode.PRECONDITION_FAILED,
    NotAllowed: ReplyCode.NOT_ALLOWED,
    NotFound: ReplyCode.NOT_FOUND,
    NotImplementedHere: ReplyCode.NOT_IMPLEMENTED,
    PreconditionFailed: ReplyCode.PRECONDITION_FAILED,
    ResourceError: ReplyCode.RESOURCE_ERROR,
    ResourceLocked: ReplyCode.RESOURCE_LOCKED,
}


def translate(error: ModelError) -> AmqpError:
    """Return the protocol's error for a refusal of the model."""
    for error_class in type(error).__mro__:
        code = CODES.get(error_class)
        if code is not None:
            return AmqpError(code, error.text)
    return AmqpError(ReplyCode.INTERNAL_ERROR, "internal error")
