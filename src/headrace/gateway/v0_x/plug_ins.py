# SPDX-License-Identifier: Apache-2.0
"""The plug-ins of 0-8 to 0-9-1: features that few clients use, in folders of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x import content_classes, early

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_x.connection.context import V0xContext

#: In this order: tickets guard the methods of all classes.
PLUG_INS: tuple[Callable[[V0xContext], None], ...] = (content_classes.register, early.register)
