# SPDX-License-Identifier: Apache-2.0
"""The page of the settings in effect."""

from __future__ import annotations

from headrace.console.api import settings
from headrace.console.pages.columns import Column
from headrace.console.pages.listings import GlobalRows, ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.user_tags import ADMINISTRATOR

PAGES = ResourcePages()
PAGES.add(
    ListPage(
        path="/settings",
        title="Settings",
        rows=GlobalRows(settings.list_settings),
        columns=(
            Column("Name", "name"),
            Column("Value", "value", "json"),
            Column("Unit", "unit"),
            Column("Source", "source"),
            Column("Default", "default", "json"),
            Column("Applied on reload", "reload", "flag"),
            Column("Description", "help", is_sortable=False),
        ),
        tag=ADMINISTRATOR,
        is_live=False,
        about="The settings in effect; secret values are hidden.",
    ),
)
