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
from headrace.columns.options.table import OPTIONS, REFUSED_OPTIONS, SPARK_OPTIONS

if TYPE_CHECKING:
    from headrace.untyped import Parsed

SUGGESTIONS_MAX: Final = 3  # Names that the error for an unknown option suggests.
# Options whose value may come from a file or an environment variable.
SECRET_OPTIONS: Final = ("uri", "password", "schemaRegistryPassword")
SECRET_LENGTH_MAX: Final = 65536  # Characters of such a file.

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}
_ALIASES: Final = {alias.lower(): option for option in OPTIONS for alias in option.aliases}


class OptionValues:
    """The parsed values of options, by their name in the table.

    The constructor raises OptionError for an option that is unknown, does not apply to `use`,
    contradicts another option, or has an invalid value.
    """

    __slots__ = ("_values", "use")

    def __init__(self, options: Mapping[str, str], use: Use) -> None:
        self.use = use
        self._values: dict[str, object] = {}
        texts = self._normalize_names(options)
        source = Source.QUEUE if "queue" in texts else Source.STREAM
        for name, text in texts.items():
            option = _BY_NAME[name.lower()]
            _check_use(option, use, source)
            self._values[name] = _parse_text(option, text)
        self._check_together()
        for name in SECRET_OPTIONS:
            self._read_secret(name, texts)
        self._check_together()

    def __contains__(self, name: str) -> bool:
        assert name.lower() in _BY_NAME, name
        return name in self._values

    def __getitem__(self, name: str) -> Parsed:
        return self._values[name]

    def get(self, name: str, default: object = None) -> Parsed:
        """Return the value of an option, or `default` if it is not set."""
        assert name.lower() in _BY_NAME, name
        return self._values.get(name, default)

    def _normalize_names(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the texts by the names in the table; raise OptionError for an unknown option.

        The case of names is ignored, because Spark passes them in lower case.
        """
        texts: dict[str, str] = {}
        spelling_by_name: dict[str, str] = {}
        ignored = {name.lower() for name in SPARK_OPTIONS}
        for key, text in options.items():
            lower = key.lower()
            if lower in ignored:
                continue
            option = _BY_NAME.get(lower) or _ALIASES.get(lower)
            if option is None:
                raise OptionError(_describe_unknown(key, self.use))
            if option.name in texts:
                raise OptionError(
                    f"options {spelling_by_name[option.name]!r} and {key!r} are the same: give one "
                    "of them"
                )
            texts[option.name] = text
            spelling_by_name[option.name] = key
        return texts

    def _read_secret(self, name: str, texts: Mapping[str, str]) -> None:
        """Read an option from the file or the variable that `<name>File` or `<name>Env` names."""
        for file_option, read_text in ((f"{name}File", _read_file), (f"{name}Env", _read_variable)):
            if file_option not in texts:
                continue
            if name in texts:
                raise OptionError(
                    f"options {name!r} and {file_option!r} contradict each other: give one of them"
                )
            text = read_text(file_option, texts[file_option])
            try:
                self._values[name] = _parse_text(_BY_NAME[name.lower()], text)
            except OptionError as error:
                raise OptionError(f"option {file_option!r}: {error}") from None

    def _check_together(self) -> None:
        """Raise OptionError for options that contradict each other or lack another option."""
        options = [_BY_NAME[name.lower()] for name in self._values]
        for option in options:
            for excluded in option.excludes:
                if excluded in self._values:
                    raise OptionError(
                        f"options {option.name!r} and {excluded!r} contradict each other: "
                        "give one of them"
                    )
        for option in options:
            if option.needs and option.needs not in self._values:
                raise OptionError(f"option {option.name!r} needs option {option.needs!r}")


def _read_file(option: str, path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(SECRET_LENGTH_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not valid UTF-8"
        raise OptionError(f"option {option!r}: {path!r} cannot be read: {reason}") from None
    if len(text) > SECRET_LENGTH_MAX:
        raise OptionError(f"option {option!r}: {path!r} has more than {SECRET_LENGTH_MAX} letters")
    return text.removesuffix("\n").removesuffix("\r")


def _read_variable(option: str, variable: str) -> str:
    text = os.environ.get(variable)
    if text is None:
        raise OptionError(
            f"option {option!r}: this process was started without the environment variable "
            f"{variable!r}"
        )
    return text


def list_option_names(use: Use) -> tuple[str, ...]:
    """Return the names of the options of one use, in the order of the table."""
    return tuple(option.name for option in OPTIONS if use in option.uses)


def _parse_text(option: Option, text: str) -> object:
    """Return the value of an option; raise OptionError if the text is invalid."""
    kind = option.kind
    try:
        value = kind.parse(text)
    except ValueError as error:
        message = str(error)
        if message.startswith("got "):
            message = f"must be {kind.expected}; {message}"
        separator = "" if message.startswith(":") else " "
        raise OptionError(f"option {option.name!r}{separator}{message}") from None
    if value is None:
        shown_value = "" if kind.secret else f"; got {text!r}"
        raise OptionError(f"option {option.name!r} must be {kind.expected}{shown_value}")
    return value


def _check_use(option: Option, use: Use, source: Source) -> None:
    """Raise OptionError if the option does not apply to the use or to the source."""
    if use not in option.uses:
        uses = _describe_uses(option.uses)
    elif use in READS and source not in option.sources:
        uses = "reading " + " and ".join(
            sorted(source_kind.value for source_kind in option.sources)
        )
    else:
        return
    hint = f"; {option.instead}" if option.instead else ""
    raise OptionError(f"option {option.name!r} is for {uses} only{hint}")


def _describe_uses(uses: frozenset[Use]) -> str:
    if uses == READS:
        return "reading"
    if uses == WRITES:
        return "writing"
    return " and ".join(sorted(use.value for use in uses))


def _describe_unknown(key: str, use: Use) -> str:
    """Return the error for an unknown option, with similar names."""
    for part, reason in REFUSED_OPTIONS.items():
        if part.lower() in key.lower():
            return f"option {key!r} is refused: {reason}"
    names = list_option_names(use)
    names_by_lowercase = {name.lower(): name for name in names}
    similar_names = get_close_matches(
        key.lower(), names_by_lowercase, n=SUGGESTIONS_MAX, cutoff=0.75
    )
    suggested = " or ".join(repr(names_by_lowercase[name]) for name in similar_names)
    return (
        f"unknown option {key!r} for {'reading' if use in READS else 'writing'} with format "
        f"'amqp'{f'; did you mean {suggested}?' if similar_names else ''}; the options are "
        f"{', '.join(names)}"
    )
