# SPDX-License-Identifier: Apache-2.0
"""The plug-ins of 0-10: features that few clients use, in folders of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_10 import content_classes

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_10.commands.table import Commands

PLUG_INS: tuple[Callable[[Commands], None], ...] = (content_classes.register,)
