# SPDX-License-Identifier: Apache-2.0
"""Errors of 0-10 commands: the code, and the index of the field that caused the error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import (
    AccessRefused,
    CommandInvalid,
    IllegalState,
    InvalidArgument,
    LimitReached,
    ModelError,
    NotAllowed,
    NotFound,
    NotImplementedHere,
    NotUnderstood,
    PreconditionFailed,
    ResourceError,
    ResourceLocked,
)
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import Command

CODES: dict[type[ModelError], ExecutionCode] = {
    AccessRefused: ExecutionCode.UNAUTHORIZED_ACCESS,
    CommandInvalid: ExecutionCode.COMMAND_INVALID,
    IllegalState: ExecutionCode.ILLEGAL_STATE,
    InvalidArgument: ExecutionCode.INVALID_ARGUMENT,
    LimitReached: ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
    NotAllowed: ExecutionCode.NOT_ALLOWED,
    NotFound: ExecutionCode.NOT_FOUND,
    NotImplementedHere: ExecutionCode.NOT_IMPLEMENTED,
    NotUnderstood: ExecutionCode.NOT_IMPLEMENTED,
    PreconditionFailed: ExecutionCode.PRECONDITION_FAILED,
    ResourceError: ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
    ResourceLocked: ExecutionCode.RESOURCE_LOCKED,
}


def field_error(code: ExecutionCode, text: str, command: Command, field: str) -> ExecutionError:
    """Return an error that names one field of a command."""
    return ExecutionError(code, text, field_indexes(command)[field])


def translate(error: ModelError, command: Command | None = None, field: str = "") -> ExecutionError:
    """Return the error of 0-10 for one of the model; it names ``field``, unless that is empty."""
    index = field_indexes(command)[field] if command is not None and field else None
    for error_class in type(error).__mro__:
        code = CODES.get(error_class)
        if code is not None:
            return ExecutionError(code, error.text, index)
    return ExecutionError(ExecutionCode.INTERNAL_ERROR, "internal error")


def field_indexes(command: Command) -> dict[str, int]:
    """Return the index of each field of a command, from 0."""
    return {name: index for index, name in enumerate(command.FIELDS)}
