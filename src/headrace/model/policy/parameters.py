# SPDX-License-Identifier: Apache-2.0
"""Parameters: settings that operators change at run time, such as policies and limits.

A parameter has a component, such as ``policy``, a name, and a JSON value. It belongs to a virtual
host or, if the name of that is empty, to the whole broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

EVERYWHERE = ""  # The virtual host of broker-wide parameters.


class Key(NamedTuple):
    """The three names under which a parameter is stored."""

    vhost: str
    component: str
    name: str


# A decoded JSON value. Any: each component checks its values when they are set.
Json: TypeAlias = Any

Parameters = Mapping[Key, Json]


def select_vhost(parameters: Parameters, vhost: str) -> dict[str, dict[str, Json]]:
    """Return the values of one virtual host by component and name."""
    by_component: dict[str, dict[str, Json]] = {}
    for key, value in parameters.items():
        if key.vhost == vhost:
            by_component.setdefault(key.component, {})[key.name] = value
    return by_component
