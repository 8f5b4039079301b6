# SPDX-License-Identifier: Apache-2.0
"""The normative statements of AMQP 0-9-1, 0-9 and 0-10, read from rules.toml."""

import tomllib
from importlib.resources import files
from typing import NamedTuple


class Rule(NamedTuple):
    """A normative statement of one version."""

    id: str
    level: str  # In the standard's words: MUST, MUST NOT, SHOULD, MAY …
    where: str  # The class, command, field or domain of the rule; "" if the standard names none.
    sentence: str  # The required behaviour, in Headrace's words.

    @property
    def version(self) -> str:
        """The label of the version of AMQP, such as 0-9-1."""
        return self.id.partition("/")[0]


def _read() -> dict[str, Rule]:
    text = files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
    return {name: Rule(name, *row) for name, row in tomllib.loads(text).items()}


RULES: dict[str, Rule] = _read()
