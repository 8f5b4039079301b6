# SPDX-License-Identifier: Apache-2.0
"""The available mechanisms: the built-in ones, and the ones of entry points.

`headrace.gateway.sasl.logins` decides which of them a client may use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.gateway.sasl.anonymous import Anonymous
from headrace.gateway.sasl.bearer import oauthbearer, xoauth2
from headrace.gateway.sasl.external import External
from headrace.gateway.sasl.password import amqplain, plain
from headrace.gateway.sasl.scram import Scram

if TYPE_CHECKING:
    from headrace.gateway.sasl.mechanism import Mechanism, MechanismServices

GROUP = "headrace.sasl"
DEFAULT = "PLAIN AMQPLAIN SCRAM-SHA-256 EXTERNAL OAUTHBEARER XOAUTH2 ANONYMOUS"

BUILT_IN: dict[str, Callable[[MechanismServices], Mechanism]] = {
    "PLAIN": plain,
    "AMQPLAIN": amqplain,
    "SCRAM-SHA-256": Scram,
    "EXTERNAL": External,
    "OAUTHBEARER": oauthbearer,
    "XOAUTH2": xoauth2,
    "ANONYMOUS": Anonymous,
}


class MechanismError(ValueError):
    """A configured mechanism cannot be loaded; the text names it and the reason."""


def load(names: str, services: MechanismServices) -> dict[str, Mechanism]:
    """Make the mechanisms of a list, in its order.

    Raises:
        MechanismError: a mechanism of that name does not exist.
    """
    mechanisms: dict[str, Mechanism] = {}
    for name in names.split():
        make = BUILT_IN.get(name) or _plug_in(name)
        mechanism = make(services)
        if mechanism.name != name:
            raise MechanismError(f"the entry point of {name} brings {mechanism.name}")
        mechanisms[name] = mechanism
    if not mechanisms:
        raise MechanismError("there must be one mechanism at least")
    return mechanisms


def _plug_in(name: str) -> Callable[[MechanismServices], Mechanism]:
    from importlib.metadata import entry_points  # Its import takes 5% of a start.

    points = entry_points(group=GROUP, name=name)
    if not points:
        raise MechanismError(
            f"there is no mechanism {name}; known: {', '.join(BUILT_IN)}, and entry points of "
            f"{GROUP}"
        )
    point = next(iter(points))
    try:
        make: Callable[[MechanismServices], Mechanism] = point.load()
    except Exception as error:
        raise MechanismError(f"the mechanism {name} cannot be loaded: {error}") from error
    return make
