# SPDX-License-Identifier: Apache-2.0
"""Net::AMQP for Perl, a codec of AMQP 0-8 that reads the standard's XML (libnet-amqp-perl)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from headrace.spec.methods import methods_by_id
from headrace.spec.properties import content_classes
from headrace.spec.tables import V0_8
from support.clients.client_programs import BROUGHT, bring
from support.timeouts import PATIENCE_S

USR = BROUGHT / "net-amqp" / "usr"


def protocol_xml() -> bytes:
    """The methods of 0-8 without extensions in the form of the standard's file."""
    root = ET.Element("amqp", major="8", minor="0", revision="0")
    contents = content_classes(V0_8)
    classes: dict[str, ET.Element] = {}
    for method in methods_by_id(V0_8).values():
        name, _, verb = method.name.partition(".")
        if method.extension:
            continue
        if name not in classes:
            classes[name] = ET.SubElement(root, "class", name=name, index=str(method.id[0]))
            row = contents.get(method.id[0])
            for field in row.properties if row else ():
                label = field.name.replace("-", " ")
                ET.SubElement(classes[name], "field", name=label, type=field.type)
        made = ET.SubElement(classes[name], "method", name=verb, index=str(method.id[1]))
        kept = len(method.fields) - method.appended
        for field in method.fields[:kept]:
            label = "nowait" if field.name == "no-wait" else field.name.replace("-", " ")
            ET.SubElement(made, "field", name=label, type=field.type)
    return ET.tostring(root)


@pytest.fixture(scope="module", autouse=True)
def client() -> None:
    bring(USR)


def test_the_usual(broker: Any, tmp_path: Path, name: str) -> None:
    xml = tmp_path / "amqp0-8.xml"
    xml.write_bytes(protocol_xml())
    libraries = [USR / "share" / "perl5", *USR.glob("lib/*/perl5/*")]
    program = Path(__file__).parent / "net_amqp.pl"
    done = subprocess.run(
        ["perl", str(program), str(xml), broker.host, str(broker.port), name],
        env={**os.environ, "PERL5LIB": ":".join(str(path) for path in libraries)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "start 8 0",
        "product Headrace",
        "ticket granted",
        f"declared {name}",
        "got first text/plain value m1",
        "delivered second perl 2",
        "closed",
    ]
