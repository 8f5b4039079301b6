# SPDX-License-Identifier: Apache-2.0
"""The command lines that do what a page does."""

from __future__ import annotations

import json
import shlex

from headrace.console.pages.texts import segment


def line(*words: object, **options: object) -> str:
    """Return a command line; an option that is None, empty or False is left out."""
    found = ["headrace", *(shlex.quote(str(word)) for word in words)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            found.append(flag)
        elif value not in (None, "", False, {}):
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            found.append(f"{flag} {shlex.quote(text)}")
    return " ".join(found)


def in_vhost(vhost: str) -> str | None:
    """Return the URL of a virtual host that commands of clients take; None for the default one."""
    return None if vhost == "/" else f"amqp://localhost/{segment(vhost)}"
