# SPDX-License-Identifier: Apache-2.0
"""Options that an environment variable may give."""

from __future__ import annotations

import os

import click

from headrace.cli.output import printable


class FromEnvironment(click.Option):
    """An option with an environment variable; warns of variables with misspelt names."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        if value is None and not ctx.resilient_parsing and isinstance(self.envvar, str):
            from headrace.server.config.settings import similar_variables

            for variable in similar_variables(self.envvar, os.environ):
                shown = printable(variable)
                click.echo(f"{shown} is not read; did you mean {self.envvar}?", err=True)
        return value
