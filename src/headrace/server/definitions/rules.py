# SPDX-License-Identifier: Apache-2.0
"""Checks of parameters and arguments of a file, and which have no equivalent."""

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
from headrace.model.policy.unknown_arguments import understand

if TYPE_CHECKING:
    from headrace.model.policy.parameters import Key

POLICIES = (policy.COMPONENT, policy.OPERATOR_COMPONENT)
COMPONENTS = frozenset({*POLICIES, VHOST_LIMITS, METADATA, USER_LIMITS})
ONLY_NAMES = {VHOST_LIMITS: LIMITS_NAME, METADATA: METADATA_NAME}  # Others cannot be.
METADATA_FIELDS = frozenset(Metadata._fields)


def check_rule(key: Key, value: object) -> str:
    """Check the value of a parameter; return what has no equivalent, or "".

    Raises:
        InvalidArgument: the value is wrong.
    """
    if key.component in POLICIES and isinstance(value, Mapping):
        definition = value.get("definition")
        if isinstance(definition, Mapping):
            strange = [name for name in definition if name not in KEYS and name not in HARMLESS]
            if strange:
                return unknown_key(min(strange))
            if len(str(definition)) > DEFINITION_CHARACTERS_MAX:
                raise InvalidArgument(f"a definition has {DEFINITION_CHARACTERS_MAX} characters")
    check_parameter(key.component, key.name, value)
    return ""


def without_effect(value: object) -> list[str]:
    """Return the keys of a policy that are kept without effect."""
    definition = value.get("definition") if isinstance(value, Mapping) else None
    return sorted(HARMLESS & definition.keys()) if isinstance(definition, Mapping) else []


def translate(
    arguments: Mapping[str, object], named_queue: str, mode: str, queue: str
) -> tuple[Mapping[str, object], str]:
    """Return the translated arguments of a queue, and the reason for a missing equivalent, or "".

    ``named_queue`` names the queue in texts, ``queue`` is its own name.

    Raises:
        InvalidArgument: an argument is wrong.
    """
    try:
        return understand(arguments, named_queue, mode, queue), ""
    except NotUnderstood as error:
        return {}, error.text
