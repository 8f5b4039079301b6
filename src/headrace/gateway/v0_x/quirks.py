# SPDX-License-Identifier: Apache-2.0
"""Deviations of single clients of 0-8, 0-9 or 0-9-1 from other clients of their version.

A client is recognised by the client properties of connection.start-ok. Qpid's clients, JMS among
them, rely on Broker-J's rules, which in 0-9-1 often differ from RabbitMQ's. Each quirk is one
field, which the code that checks it names; ``docs/reference/interop.md`` has the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PRODUCT = "qpid"  # Contained in the product's name, in any case.
PREFIX = "qpid."  # Begins the property names of a Qpid client that does not name its product.


class ClientQuirks(NamedTuple):
    """The quirks of one client; none by default."""

    qpid: bool = False  # One of Qpid's clients, or one derived from them.
    #: An expiration too large for a time to live is a moment: milliseconds since the epoch.
    expiration_moment: bool = False
    #: basic.qos holds for the whole channel from now on, not for new consumers only.
    channel_prefetch: bool = False
    #: A durable exclusive queue outlives its connection; the next owner declares it again.
    keeps_exclusive: bool = False
    #: A queue or exchange that exists is not compared with a second declaration.
    redeclares: bool = False
    #: A binding to a topic exchange replaces one with the same queue and key but other arguments.
    rebinds: bool = False
    #: A refused login is answered with connection.close, 530.
    closes_refused_login: bool = False


NO_QUIRKS = ClientQuirks()
QPID_QUIRKS = ClientQuirks(
    qpid=True,
    expiration_moment=True,
    channel_prefetch=True,
    keeps_exclusive=True,
    redeclares=True,
    rebinds=True,
    closes_refused_login=True,
)


def client_quirks(properties: Mapping[str, object]) -> ClientQuirks:
    """Return the quirks of the client that sent these properties."""
    product = properties.get("product")
    if isinstance(product, str) and PRODUCT in product.lower():
        return QPID_QUIRKS
    return QPID_QUIRKS if any(key.startswith(PREFIX) for key in properties) else NO_QUIRKS
