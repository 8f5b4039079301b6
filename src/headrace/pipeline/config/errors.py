# SPDX-License-Identifier: Apache-2.0
"""Errors of a pipeline: problems of its file by line, and failures of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_LOGIN: Final = re.compile(r"(?<=://)[^\s/@\[\],]*@")
_PASSWORD: Final = re.compile(r"(?i)\b(password|secret|token)=[^\s,;&\])]*")


def redact(text: str) -> str:
    """Return the text without passwords and without logins in URLs."""
    return _PASSWORD.sub(r"\1=***", _LOGIN.sub("***@", text))


class PipelineError(RuntimeError):
    """An operation on a pipeline failed. The text has the reason, without secrets."""

    def __init__(self, text: str) -> None:
        super().__init__(redact(text))


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem of a pipeline's file: the line (from 1), the key as written, and the fault."""

    line: int
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text


class ConfigError(PipelineError):
    """A pipeline's file is invalid; `problems` are in the order of its lines."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems))
        super().__init__(
            "\n".join(f"{file}:{problem.line}: {problem}" for problem in self.problems)
        )
