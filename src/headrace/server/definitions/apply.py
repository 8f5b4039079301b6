# SPDX-License-Identifier: Apache-2.0
"""Making what a plan says, step by step; and what is said of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.model.errors import ModelError, NotRecorded, ResourceError
from headrace.server.definitions.outcomes import DIFFERENT, MADE, Finding

if TYPE_CHECKING:
    from headrace.server.definitions.plan import Plan


def apply(plan: Plan) -> Iterator[Finding | None]:
    """Make exchanges, queues and bindings, one in each step; users and the like were changed.

    What differs by now from what was planned is given as a finding, for somebody else may have
    declared it in the meantime.

    Raises:
        ResourceError: the disk takes no more; what was made stays.
        NotRecorded: the audit log cannot be written, and must be; likewise.
    """
    target = plan.target
    for exchange in plan.exchanges:
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
        vhost = target.vhost(queue.vhost)
        reserved = queue.name.startswith("amq.") and queue.name not in vhost.queues
        try:
            vhost.declare_queue(
                "" if reserved else queue.name,
                fresh_name=queue.name,  # So that one to which a broker gave its name keeps it.
                durable=queue.durable,
                auto_delete=queue.auto_delete,
                arguments=queue.declared(vhost.rules.default_queue_type),
            )
        except (NotRecorded, ResourceError):
            raise
        except ModelError as error:
            yield Finding("queues", queue.path, queue.name, DIFFERENT, error.text)
        else:
            yield None
    for binding in plan.bindings:
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
    """How many elements became what, by section; and those of which there is something to say."""

    LINES_MAX = 1000  # Of what is not simply made or there; more are counted only.

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self.lines: list[Finding] = []
        self.unsaid = 0

    def add(self, finding: Finding) -> None:
        """Count an element."""
        section = self.counts.setdefault(finding.section, {})
        section[finding.outcome] = section.get(finding.outcome, 0) + 1
        if finding.text:
            self._say(finding)

    def correct(self, finding: Finding) -> None:
        """An element that was to be made is different after all."""
        self.counts[finding.section][MADE] -= 1
        self.add(finding)

    def total(self, outcome: str) -> int:
        """How many elements became that."""
        return sum(section.get(outcome, 0) for section in self.counts.values())

    def _say(self, finding: Finding) -> None:
        if len(self.lines) < self.LINES_MAX:
            self.lines.append(finding)
        else:
            self.unsaid += 1
