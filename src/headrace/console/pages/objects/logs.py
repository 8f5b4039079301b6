# SPDX-License-Identifier: Apache-2.0
"""The pages of the broker's log and of the audit log."""

from __future__ import annotations

from headrace.console.api import audit_log, logs
from headrace.console.pages.columns import Column
from headrace.console.pages.listings import GlobalRows, ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.user_tags import ADMINISTRATOR

PAGES = ResourcePages()
PAGES.add(
    ListPage(
        path="/log",
        title="Log",
        rows=GlobalRows(logs.list_log_lines),
        columns=(
            Column("Time", "time"),
            Column("Level", "level"),
            Column("Message", "message", is_sortable=False),
            Column("Logger", "logger"),
        ),
        tag=ADMINISTRATOR,
        is_live=False,
        about="The last 1,000 lines of the file that the setting log_file names, the newest first.",
        empty="No lines. Without log_file the log goes to standard error.",
    ),
    ListPage(
        path="/audit",
        title="Audit log",
        rows=GlobalRows(audit_log.list_audit_lines),
        columns=(
            Column("Time", "time"),
            Column("Action", "what"),
            Column("Allowed", "allowed", "flag"),
            Column("User", "who"),
            Column("From", "from"),
            Column("Virtual host", "vhost"),
            Column("Reason", "reason"),
            Column("Details", "facts", "json", is_sortable=False),
        ),
        tag=ADMINISTRATOR,
        is_live=False,
        about="The newest 1,000 matching lines of the file that the setting audit_log names.",
        empty="No lines. Without audit_log there is no audit log.",
    ),
)
