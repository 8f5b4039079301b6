# SPDX-License-Identifier: Apache-2.0
"""The option for the broker's data directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from headrace.cli.environment import FromEnvironment
from headrace.server.config.settings import Settings

Function = TypeVar("Function", bound=Callable[..., object])


def data_option(function: Function) -> Function:
    """Add the option for the data directory."""
    return click.option(
        "--data",
        cls=FromEnvironment,
        envvar="HEADRACE_DATA",
        type=click.Path(file_okay=False, readable=False, path_type=Path),
        default=Settings().data,
        show_default=True,
        help="The broker's data directory; also HEADRACE_DATA.",
    )(function)
