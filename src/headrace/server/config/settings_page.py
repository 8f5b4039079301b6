# SPDX-License-Identifier: Apache-2.0
"""The page docs/reference/settings.md, made from the table of settings."""

from __future__ import annotations

from headrace.server.config.settings import GIB, KIB, MIB, NEEDS_RESTART, SETTINGS, Setting


def manual() -> str:
    """Return the text of the page."""
    lines = [
        "# Settings",
        "",
        (
            "<!-- Generated from src/headrace/server/config/settings.py by `make docs`; "
            "do not edit. -->"
        ),
        "",
        "Each setting of the broker is a flag of `headrace serve`, an environment variable, and",
        "a key of a TOML file named by `--config` or `HEADRACE_CONFIG`. A flag overrides a",
        "variable, a variable overrides the file, and the file overrides the default. Sizes may",
        "be written `65536`, `64KiB`, `1GiB`. If a setting is wrong, the error names its source,",
        "and the broker does not start. The column *Reload* has `yes` if a running broker applies",
        "the setting when it reads its settings again",
        "([operations](../guides/operations.md#reload-settings)), or else the reason why it needs",
        "a restart.",
        "",
        "```toml",
        "# headrace.toml",
        'host = "0.0.0.0"',
        'data = "/var/lib/headrace"',
        'memory_max = "2GiB"',
        "```",
        "",
        "| Key | Flag | Variable | Default | Bounds | Reload | Meaning |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row.name}` | `{row.flag}` | `{row.variable}` | {_format_default(row)} | "
        f"{_bounds(row)} | {_reloads(row.name)} | {_help(row)} |"
        for row in SETTINGS
    ]
    return "\n".join(lines) + "\n"


def _help(row: Setting) -> str:
    """Return the description of a setting, with its former name."""
    return f"{row.help} Its former name is `{row.former}`." if row.former else row.help


def _reloads(name: str) -> str:
    """Return "yes" if a reload applies a setting, else "no" with the reason."""
    return f"no: {NEEDS_RESTART[name]}" if name in NEEDS_RESTART else "yes"


def _format_default(row: Setting) -> str:
    default = row.default
    if default is None:
        return "none"
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, int) and row.unit == "bytes":
        return _size(default)
    if default == "":
        return "empty"
    unit = f" {row.unit}" if row.unit else ""
    return f"`{default:g}`{unit}" if isinstance(default, float) else f"`{default}`{unit}"


def _bounds(row: Setting) -> str:
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    if row.low is None or row.high is None:
        return ""
    if row.unit == "bytes":
        return f"{_size(int(row.low))} to {_size(int(row.high))}"
    return f"{row.low:.15g} to {row.high:.15g}"


def _size(count: int) -> str:
    for unit, size in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return str(count)
