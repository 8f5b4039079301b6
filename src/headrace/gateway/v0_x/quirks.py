# SPDX-License-Identifier: Apache-2.0
"""Deviations of single clients of 0-8, 0-9 or 0-9-1 from other clients of their version.

A client is recognised once, by the properties it sends with connection.start-ok. Qpid's clients,
JMS among them, take Broker-J's rules for granted, which in 0-9-1 are often not RabbitMQ's. Each
quirk is one field, and the place that asks for it names it; ``docs/reference/interop.md`` has the
table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PRODUCT = "qpid"  # What the product's name has in it, whatever its case.
PREFIX = "qpid."  # Or, where the product is unknown, what the names of properties begin with.


class Quirks(NamedTuple):
    """The quirks of one client; none by default."""

    qpid: bool = False  # One of Qpid's clients, or of its kin.
    #: An expiration too large for a time to live is a moment: milliseconds since the epoch.
    expiration_moment: bool = False
    #: basic.qos holds for the whole channel from now on, not for new consumers only.
    channel_prefetch: bool = False
    #: A durable exclusive queue outlives its connection; the next owner declares it again.
    keeps_exclusive: bool = False
    #: A queue or exchange that exists is not compared with a second declaration.
    redeclares: bool = False
    #: A binding to a topic exchange replaces that of the same queue and key with other arguments.
    rebinds: bool = False
    #: A wrong login is answered with connection.close, 530.
    hears_refusal: bool = False


NONE = Quirks()
QPID = Quirks(
    qpid=True,
    expiration_moment=True,
    channel_prefetch=True,
    keeps_exclusive=True,
    redeclares=True,
    rebinds=True,
    hears_refusal=True,
)


def quirks_of(properties: Mapping[str, object]) -> Quirks:
    """Return the quirks of the client that sent these properties."""
    product = properties.get("product")
    if isinstance(product, str) and PRODUCT in product.lower():
        return QPID
    return QPID if any(key.startswith(PREFIX) for key in properties) else NONE
