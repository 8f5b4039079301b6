# SPDX-License-Identifier: Apache-2.0
"""Deviations of Qpid's clients from 0-10 that the broker tolerates.

They are known by the product that they name when they log in. Rules are kept with all others.

- qpid.messaging for Python ends its connection when it hears of known completions: it hears of them
  only when it asks (0-10/s049 lets us wait).
- The clients for Python and C++ receive from topics without accepts, in transactional sessions too
  (against 0-10/s105): such a subscription has no part in the transaction.
- They keep subscriptions, without credit, to queues that they or others delete: those end only when
  they want messages again (0-10/s090 has the session end at once).
"""

from __future__ import annotations

KIN = "qpid "  # What the products' names begin with,
RETICENT = "qpid python client"  # and this one's name.


def is_qpid_client(properties: dict[str, object]) -> bool:
    """Return True if a client is one of Qpid's."""
    product = properties.get("product")
    return isinstance(product, str) and product.lower().startswith(KIN)


def is_reticent(properties: dict[str, object]) -> bool:
    """Return True if a client must not get known completions that it did not ask for."""
    product = properties.get("product")
    return isinstance(product, str) and product.lower() == RETICENT
