# SPDX-License-Identifier: Apache-2.0
"""The checks of `headrace conformance`, against our broker in every version that it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.client.url import parse_url
from headrace.conformance import CHECKS, Check, site

if TYPE_CHECKING:
    from headrace.spec.tables import Version
    from serving import Served

CASES = [
    pytest.param(
        check,
        version,
        id=f"{check.name}-{version.label}",
        marks=[
            pytest.mark.rule(rule) for rule in check.rules if rule.startswith(f"{version.label}/")
        ],
    )
    for check in CHECKS.values()
    for version in check.versions
]


@pytest.mark.parametrize(("check", "version"), CASES)
def test_the_broker_conforms(served: Served, check: Check, version: Version) -> None:
    with site(parse_url(served.url), version) as one:
        check.run(one)
