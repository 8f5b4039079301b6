# SPDX-License-Identifier: Apache-2.0
"""What the API says of the one node."""

from __future__ import annotations

import platform


def node_name() -> str:
    """Return the name of the node in RabbitMQ's form."""
    return f"headrace@{platform.node()}"
