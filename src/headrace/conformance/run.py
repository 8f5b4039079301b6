# SPDX-License-Identifier: Apache-2.0
"""Run checks against a broker and report a verdict on each rule."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.conformance.check import CHECKS, Check, site
from headrace.conformance.peer import BrokenRule, ControlPeer, Peer
from headrace.conformance.rules import RULES, Rule
from headrace.protocol.codec_0_10 import ConnectionStart
from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version
from headrace.testing.raw_client import VersionNotServed

if TYPE_CHECKING:
    from headrace.client.url import Settings

VERSIONS = {version.label: version for version in (V0_10, V0_9_1, V0_9, V0_8)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a rule."""

    rule: Rule
    titles: tuple[str, ...]  # The titles of the checks of the rule.
    broken: str = ""  # The failed expectations; "" if the rule holds.

    @property
    def is_must(self) -> bool:
        """True if the level of the rule is MUST or MUST NOT."""
        return self.rule.level.startswith("MUST")


@dataclass(slots=True)
class VersionReport:
    """The verdicts on the rules of a version."""

    version: Version
    # Product and version of the broker; "" if it does not serve the version of AMQP.
    product: str = ""
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def is_served(self) -> bool:
        """True if the broker serves the version."""
        return bool(self.product)

    @property
    def broken(self) -> list[Verdict]:
        """The verdicts on broken rules."""
        return [verdict for verdict in self.verdicts if verdict.broken]


def run_check(check: Check, settings: Settings, version: Version) -> str:
    """Run a check; return the failed expectation, or "" if the rules hold."""
    try:
        with site(settings, version) as check_site:
            check.run(check_site)
    except BrokenRule as broken:
        return str(broken) or "the rule does not hold"
    except VersionNotServed:
        return "the broker no longer serves this version"
    except TimeoutError:
        return "no answer in time"
    except ClientError as error:
        return f"{type(error).__name__}: {error}"
    except OSError as error:
        return f"the broker is no longer reachable: {error}"
    return ""


def report(
    settings: Settings,
    version: Version,
    names: Iterable[str] = (),
    on_check: Callable[[Check], None] | None = None,
) -> VersionReport:
    """Run the checks of a version against a broker.

    Args:
        settings: the address and login of the broker.
        version: the version of AMQP.
        names: the names of the checks to run; all if empty.
        on_check: is called with each check before it runs.

    Raises:
        OSError: the address is not reachable.
    """
    product = request_product(settings, version)
    report = VersionReport(version, product)
    if not product:
        return report
    selected = set(names) or set(CHECKS)
    titles: dict[str, list[str]] = {}
    broken: dict[str, list[str]] = {}
    for check in CHECKS.values():
        rules = check.rules_for(version)
        if check.name not in selected or not rules:
            continue
        if on_check is not None:
            on_check(check)
        failure = run_check(check, settings, version)
        for rule in rules:
            titles.setdefault(rule, []).append(check.title)
            broken.setdefault(rule, []).extend([failure] if failure else [])
    report.verdicts = [
        Verdict(RULES[rule], tuple(titles[rule]), "; ".join(broken[rule]))
        for rule in RULES
        if rule in titles
    ]
    return report


def request_product(settings: Settings, version: Version) -> str:
    """Return the broker's product and its version; "" if it does not serve the AMQP version."""
    peer = (
        ControlPeer.connect_to(settings) if version is V0_10 else Peer.connect_to(settings, version)
    )
    try:
        properties = _properties(peer)
    except (VersionNotServed, BrokenRule):
        return ""
    finally:
        with contextlib.suppress(OSError):
            peer.drop()
    product = (properties.get("product") or "broker", properties.get("version") or "")
    return " ".join(str(part) for part in product if part)


def _properties(peer: Peer | ControlPeer) -> Mapping[str, object]:
    """Return the server properties of a new connection."""
    if isinstance(peer, Peer):
        return peer.greet().server_properties
    return peer.greet().expect(ConnectionStart).server_properties or {}
