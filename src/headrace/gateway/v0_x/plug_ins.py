# SPDX-License-Identifier: Apache-2.0
"""The plug-ins of 0-8 to 0-9-1: features that few clients use, in folders of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x import content_classes

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_x.methods.table import Methods

PLUG_INS: tuple[Callable[[Methods], None], ...] = (content_classes.register,)
