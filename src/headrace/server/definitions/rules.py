# SPDX-License-Identifier: Apache-2.0
"""Checks of the parameters and arguments in a file, also for an equivalent in this broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.model.errors import InvalidArgument, NotUnderstood
from headrace.model.policy import policy
from headrace.model.policy.policy import DEFINITION_CHARACTERS_MAX, HARMLESS, KEYS, unknown_key
from headrace.model.policy.rules import (
    LIMITS_NAME,
    METADATA,
    METADATA_NAME,
    USER_LIMITS,
    VHOST_LIMITS,
    Metadata,
    check_parameter,
)
from headrace.model.policy.unknown_arguments import translate_arguments

if TYPE_CHECKING:
    from headrace.model.policy.parameters import Key

POLICIES = (policy.COMPONENT, policy.OPERATOR_COMPONENT)
COMPONENTS = frozenset({*POLICIES, VHOST_LIMITS, METADATA, USER_LIMITS})
# The components whose parameters have a fixed name.
ONLY_NAMES = {VHOST_LIMITS: LIMITS_NAME, METADATA: METADATA_NAME}
METADATA_FIELDS = frozenset(Metadata._fields)


def check_rule(key: Key, value: object) -> str:
    """Check the value of a parameter; return why it has no equivalent, or "".

    Raises:
        InvalidArgument: the value is invalid.
    """
    if key.component in POLICIES and isinstance(value, Mapping):
        definition = value.get("definition")
        if isinstance(definition, Mapping):
            unknown = [name for name in definition if name not in KEYS and name not in HARMLESS]
            if unknown:
                return unknown_key(min(unknown))
            if len(str(definition)) > DEFINITION_CHARACTERS_MAX:
                raise InvalidArgument(
                    f"a definition may have at most {DEFINITION_CHARACTERS_MAX} characters"
                )
    check_parameter(key.component, key.name, value)
    return ""


def idle_keys(value: object) -> list[str]:
    """Return the keys of a policy that this broker keeps, but that have no effect."""
    definition = value.get("definition") if isinstance(value, Mapping) else None
    return sorted(HARMLESS & definition.keys()) if isinstance(definition, Mapping) else []


def translate(
    arguments: Mapping[str, object], named_queue: str, mode: str, queue: str
) -> tuple[Mapping[str, object], str]:
    """Return the arguments of a queue in this broker's terms, and why one has no equivalent, or "".

    Args:
        arguments: the arguments in the file.
        named_queue: the queue and its virtual host, for errors.
        mode: the rule of the virtual host for unknown arguments.
        queue: the name of the queue.

    Raises:
        InvalidArgument: an argument is invalid.
    """
    try:
        return translate_arguments(arguments, named_queue, mode, queue), ""
    except NotUnderstood as error:
        return {}, error.text
