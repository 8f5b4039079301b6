# SPDX-License-Identifier: Apache-2.0
"""Alarms in metrics and in the API: told by what raised them, whatever their reason says."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.console_alarms import low_on_disk, low_on_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

Told = tuple[bool, bool, float, float, float, set[tuple[str, str]]]


@contextlib.contextmanager
def operators(console: LocalConsole, reason: str, vhost: str | None = None) -> Iterator[None]:
    link = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("set alarm", vhost=vhost, reason=reason))
    try:
        yield
    finally:
        console.run(link.ask("clear alarm", vhost=vhost))


def told(console: LocalConsole) -> Told:
    """What the node and the metrics say: memory, disk, RabbitMQ's three, ours that are 1."""
    (node,) = console.get("/api/nodes")
    text = console.ask("GET", "/metrics", user=None, port=console.metrics_port).body.decode()
    found = {
        (one.name, one.labels.get("source", ""), one.labels.get("vhost", "")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    names = ("memory_used_watermark", "free_disk_space_watermark", "file_descriptor_limit")
    memory, disk, files = (found[f"rabbitmq_alarms_{name}", "", ""] for name in names)
    ours = {key[1:]: value for key, value in found.items() if key[0] == "headrace_alarms"}
    assert {source for source, _ in ours} == {"memory", "disk", "operator", "cluster"}
    active = {key for key, value in ours.items() if value}
    return node["mem_alarm"], node["disk_free_alarm"], memory, disk, files, active


@pytest.mark.parametrize(
    "reason", ["moving lab to new disk", "low on memory", "descriptor", "maintenance"]
)
def test_an_operators_alarm_is_an_operators_alarm(console: LocalConsole, reason: str) -> None:
    with operators(console, reason):
        assert told(console) == (False, False, 0, 0, 0, {("operator", "")})
    assert told(console) == (False, False, 0, 0, 0, set())


def test_alarms_are_told_by_source_and_virtual_host(console: LocalConsole) -> None:
    with low_on_disk(console.broker), operators(console, "maintenance", "/"):
        assert told(console) == (False, True, 0, 1, 0, {("disk", "/"), ("operator", "/")})
    with low_on_memory(console.broker):
        assert told(console) == (True, False, 1, 0, 0, {("memory", "")})


def test_the_check_names_the_resource(console: LocalConsole) -> None:
    with low_on_disk(console.broker), operators(console, "maintenance"):
        answer = console.ask("GET", "/api/health/checks/alarms")
    assert answer.status == 503
    assert [(row["resource"], row["reason"]) for row in answer.json["alarms"]] == [
        ("disk", "low on disk"),
        ("operator", "maintenance"),
    ]
