# SPDX-License-Identifier: Apache-2.0
"""Applies a plan step by step, and reports the outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.model.errors import ModelError, NotRecorded, ResourceError
from headrace.server.definitions.outcomes import CREATED, DIFFERENT, Finding

if TYPE_CHECKING:
    from headrace.server.definitions.plan import Plan


def apply(plan: Plan, left_out: Collection[str] = ()) -> Iterator[Finding | None]:
    """Create exchanges, queues and bindings, one in each step; the caller has changed accounts.

    Other brokers create those of the virtual hosts ``left_out``.

    A step yields a finding if the object differs from the plan, because a client has declared it
    meanwhile.

    Raises:
        ResourceError: the disk is full; objects created before stay.
        NotRecorded: the strict audit log cannot be written; objects created before stay.
    """
    target = plan.target
    for exchange in plan.exchanges:
        if exchange.vhost in left_out:
            continue
        try:
            target.vhost(exchange.vhost).declare_exchange(
                exchange.name,
                exchange.type,
                durable=exchange.durable,
                auto_delete=exchange.auto_delete,
                internal=exchange.internal,
                arguments=exchange.arguments,
            )
        except (NotRecorded, ResourceError):
            raise
        except ModelError as error:
            yield Finding("exchanges", exchange.path, exchange.name, DIFFERENT, error.text)
        else:
            yield None
    for queue in plan.queues:
        if queue.vhost in left_out:
            continue
        vhost = target.vhost(queue.vhost)
        reserved = queue.name.startswith("amq.") and queue.name not in vhost.queues
        try:
            vhost.declare_queue(
                "" if reserved else queue.name,
                # A name with the reserved prefix comes from a broker: it cannot be declared, but
                # it can be the name that the virtual host generates.
                fresh_name=queue.name,
                durable=queue.durable,
                auto_delete=queue.auto_delete,
                arguments=queue.declare_arguments(vhost.rules.default_queue_type),
            )
        except (NotRecorded, ResourceError):
            raise
        except ModelError as error:
            yield Finding("queues", queue.path, queue.name, DIFFERENT, error.text)
        else:
            yield None
    for binding in plan.bindings:
        if binding.vhost in left_out:
            continue
        try:
            target.vhost(binding.vhost).bind(
                binding.source,
                (binding.kind, binding.destination),
                binding.routing_key,
                binding.arguments,
            )
        except (NotRecorded, ResourceError):
            raise
        except ModelError as error:
            name = f"{binding.source} -> {binding.destination} ({binding.routing_key})"
            yield Finding("bindings", binding.path, name, DIFFERENT, error.text)
        else:
            yield None


class Report:
    """Counts of elements by section and outcome, and the findings with a text."""

    LINES_MAX = 1000  # Findings that are kept; further ones are only counted.

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self.lines: list[Finding] = []
        self.omitted = 0

    def add(self, finding: Finding) -> None:
        """Count an element, and keep its finding if that has a text."""
        section = self.counts.setdefault(finding.section, {})
        section[finding.outcome] = section.get(finding.outcome, 0) + 1
        if finding.text:
            self._keep(finding)

    def correct(self, finding: Finding) -> None:
        """Replace the count of an element as created by its outcome after all."""
        self.counts[finding.section][CREATED] -= 1
        self.add(finding)

    def merge(self, counts: Mapping[str, Mapping[str, int]], findings: Iterable[Finding]) -> None:
        """Add the counts and the findings of another broker's report."""
        for section, outcomes in counts.items():
            section_counts = self.counts.setdefault(section, {})
            for outcome, count in outcomes.items():
                section_counts[outcome] = section_counts.get(outcome, 0) + count
        for finding in findings:
            self._keep(finding)

    def total(self, outcome: str) -> int:
        """Return the number of elements with an outcome."""
        return sum(section.get(outcome, 0) for section in self.counts.values())

    def refusal(self, outcomes: tuple[str, ...]) -> str:
        """Return why an import is refused, if it has one of these outcomes; otherwise ""."""
        if not any(map(self.total, outcomes)):
            return ""
        for line in self.lines:
            if line.outcome in outcomes:
                return f"{line.path}: {line.outcome}: {line.text}; nothing was changed"
        return f"elements are {' or '.join(outcomes)}; nothing was changed"

    def _keep(self, finding: Finding) -> None:
        if len(self.lines) < self.LINES_MAX:
            self.lines.append(finding)
        else:
            self.omitted += 1
