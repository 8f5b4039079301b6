# SPDX-License-Identifier: Apache-2.0
"""The settings in effect, with their sources, and their reload."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from headrace.server.config.logs import LogError
from headrace.server.config.settings import (
    NEEDS_RESTART,
    SETTINGS,
    SettingError,
    StartError,
    flag_name,
    variable_name,
)
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.logs import NO_PROCESS
from headrace.server.net.tls import TlsError
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from headrace.management_rows import SettingRow
    from headrace.server.config.settings import Setting
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()

DEFAULT, FILE = "default", "file"
HIDDEN = "…"  # Shown in place of a secret.


@operation("list settings", ADMINISTER, reads=True)
def list_settings(call: Call) -> Steps:
    """List the settings; the value of a secret one is hidden."""
    for row in SETTINGS:
        value = getattr(call.broker.settings, row.name)
        setting: SettingRow = {
            "name": row.name,
            "value": json_value(row, value),
            "default": json_value(row, row.default),
            "source": value_source(row, value),
            "unit": row.unit,
            "reload": row.name not in NEEDS_RESTART,
            "help": row.help,
        }
        yield setting
    return {"items": len(SETTINGS)}


def json_value(row: Setting, value: object) -> object:
    """Return the value of a setting as a JSON value; that of a secret setting is hidden."""
    if row.secret and value:
        return HIDDEN
    return value if isinstance(value, bool | int | float) or value is None else str(value)


def value_source(row: Setting, value: object) -> str:
    """Return the source of a value: the name of a flag or variable, "file" or "default"."""
    if value == row.default:
        return DEFAULT
    names = row.names[::-1]  # The current name takes precedence over former ones.
    for flag in map(flag_name, names):
        words = (flag, f"--no-{flag[2:]}")
        if any(word in words or word.startswith(f"{flag}=") for word in sys.argv[1:]):
            return flag
    for variable in map(variable_name, names):
        text = os.environ.get(variable)
        try:
            if text is not None and row.read(text, variable) == value:
                return variable
        except SettingError:  # The variable has changed since the start of the broker.
            pass
    return FILE


@operation("reload", ADMINISTER)
def reload(call: Call) -> JsonLine:
    """Read the settings again."""
    call.log("has the settings read again")
    try:
        result = call.broker.reload()
    except (SettingError, LogError, StartError, TlsError) as error:
        call.refuse("precondition", str(error))
    if result is None:
        call.refuse("precondition", NO_PROCESS)
    return {**result}
