# SPDX-License-Identifier: Apache-2.0
"""Definitions of virtual hosts that several brokers of a cluster serve: one import, one export."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.definition_file import SECTIONS
from support.brokers.broker_process import Served, until
from support.cluster import LEASE, operator, owners
from support.management_socket import ManagementClient, OperationRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Make = Callable[..., Served]
Document = dict[str, list[dict[str, Any]]]
NAMES = ("/orders", "/bills", "/stock", "/mail")
TOPOLOGY = ("exchanges", "queues", "bindings")


def document(names: Sequence[str] = NAMES) -> Document:
    """Return definitions of virtual hosts, each with an exchange, a queue and a binding."""
    return {
        "vhosts": [{"name": name} for name in names],
        "exchanges": [
            {"name": f"x{name}", "vhost": name, "type": "topic", "durable": True} for name in names
        ],
        "queues": [
            {"name": f"q{name}", "vhost": name, "durable": True, "arguments": {}} for name in names
        ],
        "bindings": [
            {
                "source": f"x{name}",
                "vhost": name,
                "destination": f"q{name}",
                "destination_type": "queue",
                "routing_key": "a.#",
                "arguments": {},
            }
            for name in names
        ],
    }


def imported(
    client: ManagementClient, definitions: Mapping[str, list[dict[str, Any]]], **fields: object
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Import definitions; return the findings and the report."""
    client.send("import definitions", **fields)
    with client.end.makefile("w") as lines:
        for section in SECTIONS:
            if values := definitions.get(section):
                lines.write(json.dumps({"section": section, "first": 0, "values": values}) + "\n")
        lines.write('{"end": true}\n')
    findings = []
    while "done" not in (line := client.line()):
        if "item" in line:
            findings.append(line["item"])
    return findings, line["done"]


def exported(client: ManagementClient, **fields: object) -> Document:
    """Export the definitions of all virtual hosts but the first one."""
    sections: Document = {section: [] for section in SECTIONS}
    for item in client.items("export definitions", **fields):
        if item["value"].get("vhost") != "/":
            sections[item["section"]].append(item["value"])
    return sections


def names_in(definitions: Document, section: str) -> list[str]:
    return sorted(value.get("name") or value["destination"] for value in definitions[section])


def spread(broker: Served) -> bool:
    """Return True if two brokers serve the virtual hosts of the document."""
    found = owners(broker)
    return {found.get(name, "") for name in NAMES} == {"a", "b"}


@pytest.fixture
def pair(make: Make) -> tuple[Served, Served]:
    """Two brokers that know of each other."""
    first, second = make("a").start(), make("b").start()
    with operator(first) as client:
        until(lambda: len(client.items("list brokers")) == 2, "the first knows of the second")
    return first, second


def test_an_import_makes_virtual_hosts_wherever_their_owners_are(
    pair: tuple[Served, Served],
) -> None:
    with operator(pair[0]) as client:
        findings, report = imported(client, document())
        assert findings == []
        for section in ("vhosts", *TOPOLOGY):
            assert report["counts"][section] == {"made": len(NAMES)}, section
        until(lambda: spread(pair[0]), "both brokers serve some")
        found = exported(client)
    for section in TOPOLOGY:
        assert len(found[section]) == len(NAMES), section
    with operator(pair[1]) as client:
        again = exported(client)
        for section in TOPOLOGY:
            assert sorted(map(str, again[section])) == sorted(map(str, found[section])), section
        findings, report = imported(client, document(), strict=True)
        assert findings == []
        assert report["counts"]["queues"] == {"there": len(NAMES)}


def test_an_import_is_refused_as_a_whole_by_what_another_broker_serves(
    pair: tuple[Served, Served],
) -> None:
    with operator(pair[0]) as client:
        imported(client, document())
        until(lambda: spread(pair[0]), "both brokers serve some")
        elsewhere = next(name for name, owner in owners(pair[0]).items() if owner == "b")
        wrong = document()
        wrong["queues"].append({"name": "more", "vhost": "/", "durable": True, "arguments": {}})
        wrong["bindings"].append(
            {
                "source": "missing",
                "vhost": elsewhere,
                "destination": f"q{elsewhere}",
                "destination_type": "queue",
                "routing_key": "",
                "arguments": {},
            }
        )
        with pytest.raises(
            OperationRefused, match=r"bindings\[4\].*there is no exchange 'missing'"
        ):
            imported(client, wrong)
    with operator(pair[0]) as client:
        different = document()
        for exchange in different["exchanges"]:
            exchange["type"] = "direct"
        findings, report = imported(client, different)
        assert len(findings) == len(NAMES)
        assert report["counts"]["exchanges"] == {"different": len(NAMES)}
        with pytest.raises(OperationRefused, match="different"):
            imported(client, different, strict=True)
    with operator(pair[0]) as client:
        assert not [queue for queue in client.items("list queues") if queue["name"] == "more"]
        _, report = imported(client, document((*NAMES, "/new")), dry_run=True)
        assert report["counts"]["queues"] == {"there": len(NAMES), "made": 1}
        assert "/new" not in owners(pair[0])


def test_one_virtual_host_is_imported_and_exported_at_any_broker(
    pair: tuple[Served, Served],
) -> None:
    with operator(pair[0]) as client:
        imported(client, document())
        until(lambda: spread(pair[0]), "both brokers serve some")
        for name in NAMES:
            found = exported(client, vhost=name)
            assert names_in(found, "queues") == [f"q{name}"]
            assert "vhost" not in found["queues"][0]
            more = {"queues": [{"name": "more", "durable": True, "arguments": {}}]}
            imported(client, more, vhost=name)
            assert names_in(exported(client, vhost=name), "queues") == ["more", f"q{name}"]


def test_an_export_waits_for_a_takeover(make: Make) -> None:
    first, second = make("a", *LEASE).start(), make("b", *LEASE).start()
    with operator(first) as client:
        until(lambda: len(client.items("list brokers")) == 2, "the first knows of the second")
        imported(client, document())
        until(lambda: spread(first), "both brokers serve some")
        second.kill()
        assert len(exported(client)["bindings"]) == len(NAMES)
    assert set(owners(first).values()) == {"a"}


def test_what_lacks_an_owner_is_named(make: Make) -> None:
    """The lease is so long that the dead broker is thought to live."""
    lease = ("--cluster-lease-s", "60")
    first, second = make("a", *lease).start(), make("b", *lease).start()
    with operator(first) as client:
        until(lambda: len(client.items("list brokers")) == 2, "the first knows of the second")
        imported(client, document())
        until(lambda: spread(first), "both brokers serve some")
        second.kill()
        with pytest.raises(
            OperationRefused, match=r"would lack .*'/\w+': broker 'b' at .*Connect call failed"
        ):
            exported(client)
        with pytest.raises(
            OperationRefused, match=r"'/\w+': broker 'b' at .*; nothing was changed"
        ):
            imported(client, document((*NAMES, "/new")))
    with operator(first) as client:
        assert "/new" not in client.ask("cluster status")["vhosts"]


def test_new_virtual_hosts_that_no_broker_takes_are_named(make: Make) -> None:
    """The import goes on with the others, and is made again."""
    lease = ("--cluster-lease-s", "60")
    first, second = make("a", *lease).start(), make("b", *lease).start()
    with operator(first) as client:
        until(lambda: len(client.items("list brokers")) == 2, "the first knows of the second")
        second.process.suspend()
        with pytest.raises(
            OperationRefused,
            match=r"were not imported, .* virtual host '/\w+': no broker serves it",
        ):
            imported(client, document())
        second.process.resume()
    with operator(first) as client:
        until(lambda: spread(first), "both brokers serve some")
        here = [name for name, owner in owners(first).items() if owner == "a" and name != "/"]
        _, report = imported(client, document())
        assert report["counts"]["queues"] == {"there": len(here), "made": len(NAMES) - len(here)}
        assert len(exported(client)["bindings"]) == len(NAMES)
