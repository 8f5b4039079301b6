# SPDX-License-Identifier: Apache-2.0
"""The fields and files of HTML forms, read from a body."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

FIELDS_MAX = 1000
BOUNDARY_MAX = 70  # Characters: RFC 2046, section 5.1.1.
HEAD_MAX = 4096  # Bytes of the headers of a part.
# A parameter of a header: its name, and a value with or without quotes. The pattern reads each
# character once: strangers may send long headers.
PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))')
ESCAPED = re.compile(r"\\(.)")
MULTIPART = "multipart/form-data"
URLENCODED = "application/x-www-form-urlencoded"


class FormError(ValueError):
    """The body is not a form; the text is the reason."""


class Form:
    """The fields of a form, by name; of a repeated name the first."""

    def __init__(self, fields: list[tuple[str, str]], files: dict[str, bytes]) -> None:
        self.fields = fields
        self.files = files
        self._first = dict(reversed(fields))

    def get(self, name: str, default: str = "") -> str:
        """Return a field."""
        return self._first.get(name, default)

    def all(self, name: str) -> list[str]:
        """Return all values of a repeated field."""
        return [value for field, value in self.fields if field == name]

    def __contains__(self, name: str) -> bool:
        return name in self._first


def parse_form(raw: bytes, content_type: str) -> Form:
    """Return the form of a body.

    Raises:
        FormError: the body is not a form of this kind.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == MULTIPART:
        return parse_multipart(raw, content_type)
    if kind not in ("", URLENCODED):
        raise FormError(f"a form is {URLENCODED} or {MULTIPART}")
    try:
        fields = parse_qsl(
            raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError:
        raise FormError(
            f"the form is not valid UTF-8, or has more than {FIELDS_MAX} fields"
        ) from None
    return Form(fields, {})


def parse_multipart(raw: bytes, content_type: str) -> Form:
    """Return the form of a body in parts.

    Raises:
        FormError: the body is not a form of this kind.
    """
    boundary = parameters(content_type).get("boundary", "")
    if not 0 < len(boundary) <= BOUNDARY_MAX:
        raise FormError("the form has no boundary")
    parts = (b"\r\n" + raw).split(b"\r\n--" + boundary.encode("ascii", "replace"))[1:-1]
    if not 0 < len(parts) <= FIELDS_MAX:
        raise FormError(f"the form has no parts, or more than {FIELDS_MAX}")
    fields: list[tuple[str, str]] = []
    files: dict[str, bytes] = {}
    for part in parts:
        head, separator, content = part.partition(b"\r\n\r\n")
        if len(head) > HEAD_MAX:
            raise FormError(f"the headers of a part have more than {HEAD_MAX} bytes")
        name, is_file = part_name(head.decode(errors="replace"))
        if not separator or name is None:
            raise FormError("a part of the form has no name")
        if is_file:
            files.setdefault(name, content)
            continue
        try:
            fields.append((name, content.decode()))
        except UnicodeDecodeError:
            raise FormError(f"the field '{name[:80]}' is not valid UTF-8") from None
    return Form(fields, files)


def part_name(head: str) -> tuple[str | None, bool]:
    """Return the name in the header of a part, None without one, and True if it is a file."""
    for line in head.split("\r\n"):
        field, _, value = line.partition(":")
        if field.strip().lower() == "content-disposition":
            names = parameters(value)
            return names.get("name"), not names.keys().isdisjoint(("filename", "filename*"))
    return None, False


def parameters(value: str) -> dict[str, str]:
    """Return the parameters of a header, by their names in lower case; of a name the first."""
    values: dict[str, str] = {}
    for name, text, word in PARAMETER.findall(value):
        values.setdefault(name.lower(), ESCAPED.sub(r"\1", text) if text else word.strip())
    return values
