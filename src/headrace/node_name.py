# SPDX-License-Identifier: Apache-2.0
"""The name of the broker's node."""

from __future__ import annotations

import platform


def node_name() -> str:
    """Return the name of the node on this machine, in RabbitMQ's form."""
    return f"headrace@{platform.node()}"
