# SPDX-License-Identifier: Apache-2.0
"""The rules of one virtual host: policies, limits, defaults.

They are parameters (:mod:`headrace.model.policy.parameters`), named as in RabbitMQ where it has
them:

==================  ============  ======================================================
component           name          value
==================  ============  ======================================================
policy              of the policy see :mod:`headrace.model.policy.policy`
operator_policy     of the policy see :mod:`headrace.model.policy.policy`
vhost-limits        limits        {"max-connections": 100, …}
vhost-metadata      metadata      {"default_queue_type": "quorum", …}
user-limits         of the user   as vhost-limits; a parameter of the whole broker
global              any           any; a parameter of the whole broker that clients keep there
==================  ============  ======================================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import NamedTuple

from headrace.model.arguments.memory_estimate import LIMIT as DEFINITIONS
from headrace.model.errors import InvalidArgument
from headrace.model.policy import policy
from headrace.model.policy.parameters import EVERYWHERE, Key, Parameters, select_vhost
from headrace.model.policy.policy import Policies

log = logging.getLogger(__name__)

VHOST_LIMITS, LIMITS_NAME = "vhost-limits", "limits"
METADATA, METADATA_NAME = "vhost-metadata", "metadata"
USER_LIMITS = "user-limits"
GLOBAL = "global"  # Parameters that no code reads, except ``CLUSTER_NAME``.
CLUSTER_NAME = "cluster_name"  # Clients get its value.
CLUSTER_NAME_BYTES_MAX = 255
GLOBAL_CHARACTERS_MAX = 65536  # Characters of a value's JSON.
GLOBALS_MAX = 1000

NUMBER_MAX = (1 << 53) - 1  # Every JSON parser returns integers up to this exactly.
DESCRIPTION_CHARACTERS_MAX = 4096
TAGS_MAX = 64

DEFAULT, REFUSE, LOG, IGNORE = "default", "refuse", "log", "ignore"
UNKNOWN_ARGUMENTS = (DEFAULT, REFUSE, LOG, IGNORE)
QUEUE_TYPES = ("classic", "quorum", "stream")


def metadata_key(vhost: str) -> Key:
    """Return the key of the metadata of a virtual host."""
    return Key(vhost, METADATA, METADATA_NAME)


class Limits(NamedTuple):
    """Limits of a virtual host or user; a negative number means no limit."""

    connections: int = -1
    channels: int = -1
    queues: int = -1
    message_rate: int = -1  # Messages per second.
    message_size: int = -1  # Bytes of a body.
    # Bytes of memory (headrace.model.arguments.memory_estimate); of virtual hosts only.
    definitions_size: int = -1


LIMIT_NAMES = {
    "max-connections": "connections",
    "max-channels": "channels",
    "max-queues": "queues",
    "max-message-rate": "message_rate",
    "max-message-size": "message_size",
    DEFINITIONS: "definitions_size",
}
VHOST_ONLY_LIMITS = (DEFINITIONS,)
NO_LIMITS = Limits()


def read_limits(value: object, *, of_user: bool = False) -> Limits:
    """Read limits from JSON.

    Raises:
        InvalidArgument: a limit is unknown or malformed.
    """
    if not isinstance(value, Mapping):
        raise InvalidArgument("limits are not an object")
    limits = {}
    for name, number in value.items():
        field = LIMIT_NAMES.get(name) if isinstance(name, str) else None
        if field is not None and of_user and name in VHOST_ONLY_LIMITS:
            raise InvalidArgument(f"limit '{name}' is of virtual hosts, not of users")
        if field is None:
            names = ", ".join(LIMIT_NAMES)
            raise InvalidArgument(f"unknown limit '{name!s:.64}'; limits: {names}")
        if isinstance(number, bool) or not isinstance(number, int) or number > NUMBER_MAX:
            raise InvalidArgument(f"limit '{name}' is not a number: {number!r:.64}")
        if number == 0 and field == "message_rate":
            raise InvalidArgument("limit 'max-message-rate' must be at least 1; -1 means no limit")
        limits[field] = max(number, -1)
    return Limits(**limits)


class Metadata(NamedTuple):
    """Defaults of a virtual host; an empty one is the broker's setting."""

    default_queue_type: str = ""
    unknown_arguments: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    protected_from_deletion: bool = False


NO_METADATA = Metadata()


def read_metadata(value: object) -> Metadata:
    """Read metadata from JSON.

    Raises:
        InvalidArgument: a field is unknown or malformed.
    """
    if not isinstance(value, Mapping):
        raise InvalidArgument("the metadata of a virtual host must be an object")
    unknown_fields = set(value) - set(Metadata._fields)
    if unknown_fields:
        raise InvalidArgument(f"a virtual host has no '{min(map(str, unknown_fields))!s:.64}'")
    kind = value.get("default_queue_type") or ""
    if kind not in ("", *QUEUE_TYPES):
        raise InvalidArgument(f"{kind!r:.64} is not a queue type: {', '.join(QUEUE_TYPES)}")
    unknown = value.get("unknown_arguments") or ""
    if unknown not in ("", *UNKNOWN_ARGUMENTS):
        choices = ", ".join(UNKNOWN_ARGUMENTS)
        raise InvalidArgument(f"unknown_arguments must be one of {choices}, not {unknown!r:.64}")
    description = value.get("description") or ""
    if not isinstance(description, str) or len(description) > DESCRIPTION_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a description must be a string of at most {DESCRIPTION_CHARACTERS_MAX} characters"
        )
    tags = value.get("tags") or ()
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidArgument("tags must be a list of words")
    protected = value.get("protected_from_deletion") or False
    if not isinstance(protected, bool):
        raise InvalidArgument("protected_from_deletion must be true or false")
    return Metadata(kind, unknown, description, tuple(tags[:TAGS_MAX]), protected)


class Rules(NamedTuple):
    """All rules of one virtual host."""

    policies: Policies = Policies()
    limits: Limits = NO_LIMITS
    default_queue_type: str = "classic"
    unknown_arguments: str = DEFAULT


NO_RULES = Rules()


def read_rules(
    parameters: Parameters,
    vhost: str,
    *,
    default_queue_type: str = "classic",
    unknown_arguments: str = DEFAULT,
    definitions_size: int = -1,
) -> Rules:
    """Return the rules of a virtual host; malformed ones are logged and omitted.

    The other arguments are the defaults where the host has no rule.
    """
    components = select_vhost(parameters, vhost)
    limits, metadata = NO_LIMITS, NO_METADATA
    limit_values = components.get(VHOST_LIMITS, {}).get(LIMITS_NAME, {})
    try:
        limits = read_limits(limit_values)
    except InvalidArgument as error:
        log.error("vhost %r: %s", vhost, error.text)
    try:
        metadata = read_metadata(components.get(METADATA, {}).get(METADATA_NAME, {}))
    except InvalidArgument as error:
        log.error("vhost %r: %s", vhost, error.text)
    if DEFINITIONS not in limit_values:
        limits = limits._replace(definitions_size=definitions_size)
    return Rules(
        Policies(
            components.get(policy.COMPONENT, {}), components.get(policy.OPERATOR_COMPONENT, {})
        ),
        limits,
        metadata.default_queue_type or default_queue_type,
        metadata.unknown_arguments or unknown_arguments,
    )


def read_user_limits(parameters: Parameters, user: str) -> Limits:
    """Return the limits of a user; malformed ones are logged and omitted."""
    value = parameters.get(Key(EVERYWHERE, USER_LIMITS, user))
    if value is None:
        return NO_LIMITS
    try:
        return read_limits(value, of_user=True)
    except InvalidArgument as error:
        log.error("user %r: %s", user, error.text)
        return NO_LIMITS


def check_parameter(component: str, name: str, value: object) -> None:
    """Refuse a malformed parameter of a known component.

    Raises:
        InvalidArgument: the parameter is malformed; the text names the field.
    """
    if component in (policy.COMPONENT, policy.OPERATOR_COMPONENT):
        policy.read_policy(name, value)
    elif component in (VHOST_LIMITS, USER_LIMITS):
        read_limits(value, of_user=component == USER_LIMITS)
    elif component == METADATA:
        read_metadata(value)
    elif component == GLOBAL:
        check_global(name, value)


def check_global(name: str, value: object) -> None:
    """Refuse a value that a parameter of the whole broker cannot have.

    Raises:
        InvalidArgument: the value is too long, or not valid as the name of a cluster.
    """
    if len(json.dumps(value)) > GLOBAL_CHARACTERS_MAX:
        raise InvalidArgument(f"'value' has more than {GLOBAL_CHARACTERS_MAX} characters")
    if name == CLUSTER_NAME and not (
        isinstance(value, str)
        and value.isprintable()
        and 0 < len(value.encode()) <= CLUSTER_NAME_BYTES_MAX
    ):
        raise InvalidArgument(
            f"the name of a cluster must be a string of at most {CLUSTER_NAME_BYTES_MAX} bytes"
        )
