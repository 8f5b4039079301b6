# SPDX-License-Identifier: Apache-2.0
"""What a broker serves in 0-10: the commands, and the plug-ins beside them.

A plug-in is a feature that few clients use, in a folder of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_10 import content_classes
from headrace.gateway.v0_10.commands import table

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_10.handlers import Commands

SERVED: tuple[Callable[[Commands], None], ...] = (table.register, content_classes.register)
