# SPDX-License-Identifier: Apache-2.0
"""The command lines of ``headrace`` that are equivalent to a page or an action.

The fields of a form are texts while the form is shown, and typed values after it is sent.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from headrace.console.pages.texts import segment
from headrace.exact_json import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping


def command_line(*words: object, **options: object) -> str:
    """Return a command line of ``headrace``, quoted for a shell.

    An option that is None, empty or False is left out. An option with a list is repeated for each
    value; an object is written as JSON. Clients choose names, so a word may begin with a dash:
    ``--`` ends the options before it.
    """
    texts = [str(word) for word in words]
    dashed_indices = (index for index, text in enumerate(texts) if text.startswith("-"))
    options_end = next(dashed_indices, len(texts))
    flags: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            flags.append(flag)
        elif isinstance(value, list | tuple):
            flags += [f"{flag} {shlex.quote(str(item))}" for item in value]
        elif value not in (None, "", False, {}):
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            flags.append(f"{flag} {shlex.quote(text)}")
    if options_end < len(texts):
        flags.append("--")
    before = map(shlex.quote, texts[:options_end])
    after = map(shlex.quote, texts[options_end:])
    return " ".join(("headrace", *before, *flags, *after))


def is_on(value: object) -> bool:
    """Return True if the value of a flag's field is set, as text or typed."""
    return value in (True, "true")


def split_words(value: object) -> list[str]:
    """Return the words of a text that are separated by commas."""
    return [word.strip() for word in str(value or "").split(",") if word.strip()]


def read_object(value: object) -> dict[str, object]:
    """Return the JSON object of a field, as text or typed; empty if the text is not an object."""
    if isinstance(value, str) and value:
        try:
            value = read_json(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def assignments(values: Mapping[str, object]) -> list[str]:
    """Return NAME=VALUE for each argument, with the value as JSON."""
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def vhost_url(vhost: str) -> str | None:
    """Return the value of ``--url`` for a virtual host; None for the virtual host ``/``."""
    return None if vhost == "/" else f"amqp://localhost/{segment(vhost)}"


def publish_command_line(
    routing_key: str,
    values: Mapping[str, object],
    properties: Mapping[str, object],
    vhost: str,
    exchange: str = "",
) -> str:
    """Return the command line that publishes a message.

    Empty if a property has no option of the command, or the payload is sent in base64.
    """
    remaining = {name: value for name, value in properties.items() if value not in (None, "", {})}
    expiration = str(remaining.pop("expiration", ""))
    headers, text = remaining.pop("headers", {}), str(values.get("payload") or "")
    options = {
        "content_type": remaining.pop("content_type", None),
        "priority": remaining.pop("priority", None),
        "transient": str(remaining.pop("delivery_mode", 2)) == "1",
    }
    is_base64 = values.get("payload_encoding") == "base64" and text
    if (
        remaining
        or is_base64
        or not isinstance(headers, dict)
        or not (expiration or "0").isdecimal()
        or len(expiration) > 18
    ):
        return ""
    return command_line(
        "publish",
        routing_key,
        text or "BODY",
        exchange=exchange,
        header=assignments(headers),
        expiration_s=int(expiration) / 1000 if expiration else None,
        url=vhost_url(vhost),
        **options,
    )
