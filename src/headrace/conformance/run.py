# SPDX-License-Identifier: Apache-2.0
"""Puts a broker to all checks of the versions that it serves, and gathers the verdicts by rule."""

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
from headrace.testing.raw_client import NotServed

if TYPE_CHECKING:
    from headrace.client.url import Settings

VERSIONS = {version.label: version for version in (V0_10, V0_9_1, V0_9, V0_8)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one rule."""

    rule: Rule
    titles: tuple[str, ...]  # Of the checks that it was put to.
    broken: str = ""  # What was not so; "" when the rule holds.

    @property
    def is_must(self) -> bool:
        """True when the rule leaves no choice."""
        return self.rule.level.startswith("MUST")


@dataclass(slots=True)
class Report:
    """The verdicts of one version."""

    version: Version
    product: str = ""  # What the broker calls itself; "" when it does not serve the version.
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def is_served(self) -> bool:
        """True when the broker serves this version."""
        return bool(self.product)

    @property
    def broken(self) -> list[Verdict]:
        """The rules that do not hold."""
        return [verdict for verdict in self.verdicts if verdict.broken]


def put_to(check: Check, settings: Settings, version: Version) -> str:
    """Run one check; return what was not as it must be, or ""."""
    try:
        with site(settings, version) as one:
            check.run(one)
    except BrokenRule as broken:
        return str(broken) or "it does not hold"
    except NotServed:
        return "the broker no longer speaks this version"
    except TimeoutError:
        return "no answer in time"
    except ClientError as error:
        return f"{type(error).__name__}: {error}"
    except OSError as error:
        return f"the broker can no longer be reached: {error}"
    return ""


def report(
    settings: Settings,
    version: Version,
    names: Iterable[str] = (),
    on_check: Callable[[Check], None] | None = None,
) -> Report:
    """Put the broker to the checks of a version, or to those of them that are named.

    `on_check` is called with each check before it runs.

    Raises:
        OSError: no broker answers at the address.
    """
    product = product_of(settings, version)
    report = Report(version, product)
    if not product:
        return report
    wanted = set(names) or set(CHECKS)
    titles: dict[str, list[str]] = {}
    broken: dict[str, list[str]] = {}
    for check in CHECKS.values():
        rules = check.rules_of(version)
        if check.name not in wanted or not rules:
            continue
        if on_check is not None:
            on_check(check)
        wrong = put_to(check, settings, version)
        for rule in rules:
            titles.setdefault(rule, []).append(check.title)
            broken.setdefault(rule, []).extend([wrong] if wrong else [])
    report.verdicts = [
        Verdict(RULES[rule], tuple(titles[rule]), "; ".join(broken[rule]))
        for rule in RULES
        if rule in titles
    ]
    return report


def product_of(settings: Settings, version: Version) -> str:
    """Return the broker's product name in a version; "" when it does not serve that."""
    peer = ControlPeer.at(settings) if version is V0_10 else Peer.at(settings, version)
    try:
        properties = _properties(peer)
    except (NotServed, BrokenRule):
        return ""
    finally:
        with contextlib.suppress(OSError):
            peer.drop()
    words = (properties.get("product") or "broker", properties.get("version") or "")
    return " ".join(str(word) for word in words if word)


def _properties(peer: Peer | ControlPeer) -> Mapping[str, object]:
    """Return the server properties of a new connection."""
    if isinstance(peer, Peer):
        return peer.greet().server_properties
    return peer.greet().expect(ConnectionStart).server_properties or {}
