# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium on the console's pages, one of each for a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.browser import Chromium, find_chromium
from support.console import LocalConsole
from support.console_objects import populate
from support.console_pipelines import claim_groups, places, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with objects of every kind, and a console."""
    data, folder = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("pipelines")
    with LocalConsole(data, pipelines=places(folder)) as running, populate(running):
        claim_groups(running.broker.url)
        with run_pipeline(folder):
            yield running


@pytest.fixture(scope="module")
def chromium(console: LocalConsole, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser whose user has logged in."""
    if find_chromium() is None:
        pytest.skip("there is no Chromium; `make peers` installs it")
    with Chromium(console.addresses["http"], tmp_path_factory.mktemp("chromium")) as browser:
        browser.log_in("guest", "guest")
        yield browser
