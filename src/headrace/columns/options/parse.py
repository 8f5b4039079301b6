# SPDX-License-Identifier: Apache-2.0
"""The options of a read or write, checked against the table of options.

An error names the option and its allowed values. It never contains a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.options.kinds import OptionError
from headrace.columns.options.option import READS, WRITES, Option, Source, Use
from headrace.columns.options.table import OPTIONS, REFUSED, SPARK_OPTIONS

if TYPE_CHECKING:
    from headrace.untyped import Parsed

SUGGESTIONS_MAX: Final = 3
SECRETS: Final = (
    "uri",
    "password",
    "schemaRegistryPassword",
)  # What a file or a variable may hold.
SECRET_LENGTH_MAX: Final = 65536

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}
_ALIASES: Final = {alias.lower(): option for option in OPTIONS for alias in option.aliases}


class OptionValues:
    """Options by name, with values of the types of their kinds.

    `options[name]` and `options.get(name)` take a name of the table. OptionError for an unknown
    option, one of another use, one that contradicts another, or one with a wrong value.
    """

    __slots__ = ("_values", "use")

    def __init__(self, options: Mapping[str, str], use: Use) -> None:
        self.use = use
        self._values: dict[str, object] = {}
        texts = self._known(options)
        source = Source.QUEUE if "queue" in texts else Source.STREAM
        for name, text in texts.items():
            option = _BY_NAME[name.lower()]
            _check_place(option, use, source)
            self._values[name] = _parse_text(option, text)
        self._check_together()
        for name in SECRETS:
            self._read_secret(name, texts)
        self._check_together()

    def __contains__(self, name: str) -> bool:
        assert name.lower() in _BY_NAME, name
        return name in self._values

    def __getitem__(self, name: str) -> Parsed:
        return self._values[name]

    def get(self, name: str, default: object = None) -> Parsed:
        """Return the value of an option, or `default`."""
        assert name.lower() in _BY_NAME, name
        return self._values.get(name, default)

    def _known(self, options: Mapping[str, str]) -> dict[str, str]:
        """The texts by the table's names; an unknown option is refused.

        Names are compared without case: Spark hands them on in lower case.
        """
        texts: dict[str, str] = {}
        spelled: dict[str, str] = {}
        ignored = {name.lower() for name in SPARK_OPTIONS}
        for key, text in options.items():
            lower = key.lower()
            if lower in ignored:
                continue
            option = _BY_NAME.get(lower) or _ALIASES.get(lower)
            if option is None:
                raise OptionError(_unknown(key, self.use))
            if option.name in texts:
                raise OptionError(
                    f"options {spelled[option.name]!r} and {key!r} are the same: give one of them"
                )
            texts[option.name] = text
            spelled[option.name] = key
        return texts

    def _read_secret(self, name: str, texts: Mapping[str, str]) -> None:
        """Take an option from the file or the variable that another one names instead."""
        for where, read in ((f"{name}File", _of_file), (f"{name}Env", _of_environment)):
            if where not in texts:
                continue
            if name in texts:
                raise OptionError(
                    f"options {name!r} and {where!r} contradict each other: give one of them"
                )
            text = read(where, texts[where])
            try:
                self._values[name] = _parse_text(_BY_NAME[name.lower()], text)
            except OptionError as error:
                raise OptionError(f"option {where!r}: {error}") from None

    def _check_together(self) -> None:
        options = [_BY_NAME[name.lower()] for name in self._values]
        for option in options:
            for other in option.excludes:
                if other in self._values:
                    raise OptionError(
                        f"options {option.name!r} and {other!r} contradict each other: "
                        "give one of them"
                    )
        for option in options:
            if option.needs and option.needs not in self._values:
                raise OptionError(f"option {option.name!r} needs option {option.needs!r}")


def _of_file(option: str, path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(SECRET_LENGTH_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8"
        raise OptionError(f"option {option!r}: {path!r} cannot be read: {reason}") from None
    if len(text) > SECRET_LENGTH_MAX:
        raise OptionError(f"option {option!r}: {path!r} has more than {SECRET_LENGTH_MAX} letters")
    return text.removesuffix("\n").removesuffix("\r")


def _of_environment(option: str, variable: str) -> str:
    text = os.environ.get(variable)
    if text is None:
        raise OptionError(
            f"option {option!r}: this process was started without the environment variable "
            f"{variable!r}"
        )
    return text


def option_names_of(use: Use) -> tuple[str, ...]:
    """Return the names of the options of one use, in the order of the table."""
    return tuple(option.name for option in OPTIONS if use in option.uses)


def _parse_text(option: Option, text: str) -> object:
    kind = option.kind
    try:
        value = kind.parse(text)
    except ValueError as error:
        more = str(error)
        if more.startswith("got "):
            more = f"must be {kind.expected}; {more}"
        gap = "" if more.startswith(":") else " "
        raise OptionError(f"option {option.name!r}{gap}{more}") from None
    if value is None:
        got = "" if kind.secret else f"; got {text!r}"
        raise OptionError(f"option {option.name!r} must be {kind.expected}{got}")
    return value


def _check_place(option: Option, use: Use, source: Source) -> None:
    if use not in option.uses:
        where = _places(option.uses)
    elif use in READS and source not in option.sources:
        where = "reading " + " and ".join(
            sorted(source_kind.value for source_kind in option.sources)
        )
    else:
        return
    instead = f"; {option.instead}" if option.instead else ""
    raise OptionError(f"option {option.name!r} is for {where} only{instead}")


def _places(uses: frozenset[Use]) -> str:
    if uses == READS:
        return "reading"
    if uses == WRITES:
        return "writing"
    return " and ".join(sorted(use.value for use in uses))


def _unknown(key: str, use: Use) -> str:
    for part, why in REFUSED.items():
        if part.lower() in key.lower():
            return f"option {key!r} is refused: {why}"
    names = option_names_of(use)
    by_lower = {name.lower(): name for name in names}
    close = get_close_matches(key.lower(), by_lower, n=SUGGESTIONS_MAX, cutoff=0.75)
    suggested = " or ".join(repr(by_lower[name]) for name in close)
    return (
        f"unknown option {key!r} for {'reading' if use in READS else 'writing'} with format "
        f"'amqp'{f'; did you mean {suggested}?' if close else ''}; the options are "
        f"{', '.join(names)}"
    )
