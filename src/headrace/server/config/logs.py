# SPDX-License-Identifier: Apache-2.0
"""The log of a broker process: text or JSON, to standard error or a file.

A record in JSON is one line with ``time``, ``level``, ``logger`` and ``message``. A record about a
connection also has its number as ``connection``, the number of the ``channel`` if there is one, and
``user``, ``vhost`` and ``peer``. A record of an exception has its traceback as ``exception``.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.server.config.repeated_lines import RepeatedLines

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CONNECTION = re.compile(r"^connection (\d{1,19})(?:, channel (\d{1,5}))?\b")
KEPT_MAX = 100  # Rotated files that are kept.

Facts = Callable[[int], Mapping[str, object]]


class LogError(Exception):
    """The log file cannot be written; the text has the reason."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: Facts | None = None  # Returns the fields of a connection by its number.

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        message = record.getMessage()
        record_fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        match = CONNECTION.match(message)
        if match is not None:
            number = int(match[1])
            record_fields["connection"] = number
            if match[2] is not None:
                record_fields["channel"] = int(match[2])
            if self.facts is not None:
                record_fields |= self.facts(number)
        if record.exc_info:
            record_fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(record_fields)


class TextFormatter(logging.Formatter):
    """Formats a record as one line: control characters, as in names of clients, are escaped."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
        if not record.message.isprintable():
            record.message = "".join(
                character
                if character.isprintable()
                else character.encode("unicode_escape").decode()
                for character in record.message
            )
        return super().formatMessage(record)


class Logs:
    """The log's handler and file."""

    def __init__(self, settings: Settings) -> None:
        """Begin to log as the settings say.

        Raises:
            LogError: the file cannot be written.
        """
        self.path: Path | None = None
        self.facts: Facts | None = None
        self._handler: logging.Handler | None = None
        self._repeats = RepeatedLines()
        self.use(self.open_handler(settings), settings)

    def open_handler(self, settings: Settings) -> logging.Handler:
        """Open the log that the settings name; return its handler, for :meth:`use`.

        Raises:
            LogError: the file cannot be written.
        """
        if settings.log_file is None:
            handler: logging.Handler = logging.StreamHandler(sys.stderr)
        else:
            try:
                handler = logging.FileHandler(settings.log_file, encoding="utf-8")
            except OSError as error:
                raise LogError(f"log_file {settings.log_file}: {error.strerror}") from None
        if settings.log_format == "json":
            formatter = JsonFormatter()
            formatter.facts = self.connection_facts
            handler.setFormatter(formatter)
        else:
            handler.setFormatter(TextFormatter(TEXT_FORMAT))
        handler.addFilter(self._repeats)
        return handler

    def log_repeats(self) -> None:
        """Log the counts of lines that were suppressed in a minute that has ended."""
        for record in self._repeats.take_ended(time.time()):
            if self._handler is not None:
                self._handler.emit(record)

    def use(self, handler: logging.Handler, settings: Settings) -> None:
        """Log to a handler that :meth:`open_handler` made from these settings."""
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(settings.log_level.upper())
        for present in list(root.handlers):
            if present is not handler and (present is self._handler or self._handler is None):
                root.removeHandler(present)
        if self._handler is not None:
            self._handler.close()
        self._handler = handler
        self.path = settings.log_file

    def connection_facts(self, number: int) -> dict[str, object]:
        """Return the fields that a line has for the connection with a number."""
        return {} if self.facts is None else dict(self.facts(number))

    def reopen(self) -> None:
        """Reopen the file by its name, after it was renamed.

        Raises:
            LogError: the new file cannot be opened; the log continues in the old file.
        """
        handler = self._handler
        if self.path is None or not isinstance(handler, logging.FileHandler):
            return
        try:
            stream = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise LogError(f"log_file {self.path}: {error.strerror}") from None
        former_stream = handler.setStream(stream)
        if former_stream is not None:
            former_stream.close()

    def rotate(self, keep: int) -> str:
        """Rename the file to ``….1``, older ones one number up, and begin a new file.

        ``keep`` renamed files are kept. Return the new name of the file.

        Raises:
            LogError: the log has no file, or the file cannot be renamed.
        """
        if self.path is None:
            raise LogError("log_file is not set: the log goes to standard error")
        path = self.path
        try:
            first = shift(path, keep)
        except OSError as error:
            raise LogError(f"log_file {path}: {error.strerror}") from None
        self.reopen()
        return str(first)


def shift(path: Path, keep: int) -> Path:
    """Rename a file to ``….1``, and older ones one number up; return the new path.

    Only ``keep`` renamed files are kept.

    Raises:
        OSError: a file cannot be renamed, or is a device or a pipe.
    """
    if not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file")
    for number in range(KEPT_MAX, 0, -1):  # A larger ``keep`` may have left more files.
        older = path.with_name(f"{path.name}.{number}")
        if older.exists() and number >= keep:
            older.unlink()
        elif older.exists():
            older.rename(path.with_name(f"{path.name}.{number + 1}"))
    first = path.with_name(f"{path.name}.1")
    path.rename(first)
    return first
