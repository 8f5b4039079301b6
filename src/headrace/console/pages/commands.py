# SPDX-License-Identifier: Apache-2.0
"""The command lines that do what a page does.

Fields of a form are texts while it is shown, and values when it is sent.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from headrace.console.pages.texts import segment
from headrace.exact_json import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping


def line(*words: object, **options: object) -> str:
    """Return a command line; an option that is None, empty or False is left out.

    An option of several values is repeated for each; an object is JSON. Names are chosen by peers:
    options end before the first word that would be taken for one.
    """
    plain = [str(word) for word in words]
    dashes = (at for at, word in enumerate(plain) if word.startswith("-"))
    first = next(dashes, len(plain))
    flags: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            flags.append(flag)
        elif isinstance(value, list | tuple):
            flags += [f"{flag} {shlex.quote(str(one))}" for one in value]
        elif value not in (None, "", False, {}):
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            flags.append(f"{flag} {shlex.quote(text)}")
    if first < len(plain):
        flags.append("--")
    before, after = (map(shlex.quote, part) for part in (plain[:first], plain[first:]))
    return " ".join(("headrace", *before, *flags, *after))


def is_on(value: object) -> bool:
    """Return True if a flag is set."""
    return value in (True, "true")


def listed(value: object) -> list[str]:
    """Return the words that commas separate."""
    return [one.strip() for one in str(value or "").split(",") if one.strip()]


def table(value: object) -> dict[str, object]:
    """Return an object of a form; an empty one while its text is no JSON."""
    if isinstance(value, str) and value:
        try:
            value = read_json(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def assigned(values: Mapping[str, object]) -> list[str]:
    """Return NAME=VALUE for each value, with its type."""
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def in_vhost(vhost: str) -> str | None:
    """Return the URL of a virtual host that commands of clients take; None for the default one."""
    return None if vhost == "/" else f"amqp://localhost/{segment(vhost)}"


def publishing(
    routing_key: str,
    values: Mapping[str, object],
    properties: Mapping[str, object],
    vhost: str,
    exchange: str = "",
) -> str:
    """Return the command that publishes a message; "" if the command cannot say all of it."""
    given = {name: value for name, value in properties.items() if value not in (None, "", {})}
    expiration = str(given.pop("expiration", ""))
    headers, text = given.pop("headers", {}), str(values.get("payload") or "")
    options = {
        "content_type": given.pop("content_type", None),
        "priority": given.pop("priority", None),
        "transient": str(given.pop("delivery_mode", 2)) == "1",
    }
    coded = values.get("payload_encoding") == "base64" and text
    if given or coded or not isinstance(headers, dict) or not (expiration or "0").isdecimal():
        return ""
    return line(
        "publish",
        routing_key,
        text or "BODY",
        exchange=exchange,
        header=assigned(headers),
        expiration_s=int(expiration) / 1000 if expiration else None,
        url=in_vhost(vhost),
        **options,
    )
