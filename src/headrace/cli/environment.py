# SPDX-License-Identifier: Apache-2.0
"""Options of commands that a variable of the environment may give."""

from __future__ import annotations

import os
from typing import Any

import click

from headrace.cli.output import printable


class FromEnvironment(click.Option):
    """An option with a variable; when neither is given, variables nearly of its name are told."""

    def resolve_envvar_value(self, ctx: click.Context) -> Any:
        found = super().resolve_envvar_value(ctx)
        if found is None and not ctx.resilient_parsing and isinstance(self.envvar, str):
            from headrace.server.config.settings import misspelt

            for variable in misspelt(self.envvar, os.environ):
                said = printable(variable)
                click.echo(f"{said} is not read; did you mean {self.envvar}?", err=True)
        return found
