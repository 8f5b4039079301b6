# SPDX-License-Identifier: Apache-2.0
"""The names of the node and of its cluster."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from headrace.console.http_errors import not_found
from headrace.node_name import node_name

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall


def check_node(name: str) -> None:
    """Refuse the name of another node in a path.

    Plugins of Nagios ask for ``rabbit@`` and the host name, whatever the name of the node.

    Raises:
        HttpError: 404, the name is of another node.
    """
    short = platform.node().partition(".")[0]
    if name not in (node_name(), f"rabbit@{platform.node()}", f"rabbit@{short}"):
        raise not_found()


async def cluster_name(call: HttpCall) -> str:
    """Return the name of the cluster that an operator set; by default the node's."""
    return await call.state.cluster_name() or node_name()
