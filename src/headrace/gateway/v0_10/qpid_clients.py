# SPDX-License-Identifier: Apache-2.0
"""Deviations of Qpid's clients from 0-10 that the broker tolerates.

They are recognised by the property ``product`` of connection.start-ok.

- qpid.messaging for Python closes its connection when it gets known completions that it did not
  request: it gets them only on request (0-10/s049 allows the delay).
- The clients for Python and C++ receive from topics without accepts, in transactional sessions too
  (against 0-10/s105): such a subscription has no part in the transaction.
- They keep subscriptions, without credit, to queues that they or others delete: those end only when
  they get credit again (by 0-10/s090 the session would end at once).
"""

from __future__ import annotations

PREFIX = "qpid "  # The beginning of the names of Qpid's products.
PYTHON_CLIENT = "qpid python client"


def is_qpid_client(properties: dict[str, object]) -> bool:
    """Return True if a client is one of Qpid's."""
    product = properties.get("product")
    return isinstance(product, str) and product.lower().startswith(PREFIX)


def suppresses_known_completed(properties: dict[str, object]) -> bool:
    """Return True if a client must not get known completions that it did not request."""
    product = properties.get("product")
    return isinstance(product, str) and product.lower() == PYTHON_CLIENT
