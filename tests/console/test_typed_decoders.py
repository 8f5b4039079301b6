# SPDX-License-Identifier: Apache-2.0
"""Answers of the HTTP API as the typed decoders of other people's clients read them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
import trustme

from headrace.console.api.routes import ROUTES
from headrace.node_name import node_name
from support.console import GUEST, LocalConsole
from support.console_alarms import low_on_disk, low_on_memory
from support.decoders import Decoder
from support.one_of_everything import SEER, one_of_everything

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DECODERS = [Decoder(file) for file in sorted(Path(__file__).parent.glob("decoders/*.toml"))]
SAMPLED = ("overview", "nodes", "queues", "exchanges", "connections", "channels", "vhosts")
WINDOWS = "&".join(
    f"{kind}_age=60&{kind}_incr=5" for kind in ("lengths", "msg_rates", "data_rates", "node_stats")
)
#: What there is none of: federation, shovels, the protocol of streams, extensions of the pages.
UNREAD = re.compile(
    r"/api(?!/)|/api/(headrace/|index|openapi|health/|healthchecks/|definitions-|all-config|login"
    r"|config/|top/|version|traces|auth/hash|auth/attempts/.*/source|nodes/.*/relative"
    r"|queues/detailed|bindings/.*/e/{}/{}/{}/{}|topic-permissions/{}/{}/{}|users/.*/queues|connections/.*/sessions|parameters/.*/.*/.*)"
)
#: Lists that are not there when they are empty.
NOT_EMPTY = re.compile(r"/api/topic-permissions/\{vhost\}")
ABSENT = re.compile(r"/api/(shovels|federation-|stream/|parameters|deprecated-|extensions)")


@pytest.fixture(scope="module")
def everything(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LocalConsole, Mapping[str, list[str]]]]:
    with one_of_everything(tmp_path_factory.mktemp("data"), trustme.CA()) as found:
        yield found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    with LocalConsole(tmp_path_factory.mktemp("bare")) as running:
        yield running


def paths_of(template: str, names: Mapping[str, list[str]]) -> list[str]:
    """Return the paths to all objects that a path with parameters leads to."""
    path, _, query = template.partition("?")
    parameters = re.findall(r"\{(\w+)\}", path)
    kinds = [path.split("/")[2] if one == "name" else one for one in parameters]
    found = []
    for chosen in itertools.product(*(names[kind] for kind in kinds)):
        by = dict(zip(parameters, chosen, strict=True))
        if len(by) > 1 and by.get("vhost", "/") != "/" and "component" not in by:
            continue  # All objects are in one virtual host.
        one = path.format(**{name: quote(value, safe="") for name, value in by.items()})
        found.append(f"{one}?{query}" if query else one)
    return found


def cases(part: str) -> list[object]:
    """Return each path of a part of the files, with its decoder."""
    return [
        pytest.param(decoder, path, id=f"{decoder.name}:{path}")
        for decoder in DECODERS
        for path in getattr(decoder, part)
    ]


@pytest.mark.parametrize(("decoder", "template"), cases("answers"))
def test_every_answer_is_read(everything, decoder: Decoder, template: str) -> None:
    console, names = everything
    found = {}
    for path in paths_of(template, names):
        answer = console.ask("GET", path)
        if answer.status != 404 or not NOT_EMPTY.match(template):
            assert answer.status == 200, path
            found[path] = answer.json
    for path, answer in found.items():
        assert not decoder.faults(decoder.answers[template], answer), path
    assert any(found.values()) is not bool(ABSENT.match(template)), "no row that was checked"


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda one: one.name)
def test_answers_with_samples_are_read(everything, decoder: Decoder) -> None:
    console, names = everything
    sampled = 0
    for template, type_ in decoder.answers.items():
        if "?" in template or template.split("/")[2] not in SAMPLED:
            continue
        for path in paths_of(template, names):
            answer = console.ask("GET", f"{path}?{WINDOWS}")
            assert answer.status == 200, path
            assert not decoder.faults(type_, answer.json), path
            sampled += answer.body.count(b'"samples":[{"sample":')
    assert sampled > 100


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda one: one.name)
@pytest.mark.parametrize("user", [GUEST, SEER], ids=["administrator", "management"])
def test_answers_about_nothing_are_read(everything, bare, decoder: Decoder, user) -> None:
    """Of a broker without objects, and of a user who sees next to none."""
    console = bare if user == GUEST else everything[0]
    names = {"vhost": ["/"], "node": [node_name()], "user": [user[0]], "exchange": ["amq.topic"]}
    names["component"] = ["shovel"]
    read = set()
    for template, type_ in decoder.answers.items():
        if not set(re.findall(r"\{(\w+)\}", template)) <= names.keys():
            continue
        for path in paths_of(template, names):
            answer = console.ask("GET", path, user=user)
            if answer.status == 200:
                assert not decoder.faults(type_, answer.json), path
                read.add(template)
    assert len(read) > 20
    assert {"/api/overview", "/api/vhosts/{vhost}"} <= read


@pytest.mark.parametrize(("decoder", "template"), cases("posts"))
def test_answers_to_messages_are_read(everything, decoder: Decoder, template: str) -> None:
    console, _ = everything
    path = template.format(vhost="%2F", exchange="amq.default", queue="mail")
    console.ask("PUT", "/api/queues/%2F/mail", {"durable": True})
    headers = {"h": [1, "two"]}
    message = {"routing_key": "mail", "payload": "m", "payload_encoding": "string"}
    ask = {"ackmode": "ack_requeue_true", "count": 9, "encoding": "auto"}
    for properties in ({}, {"headers": headers, "delivery_mode": 2, "timestamp": 1}):
        body = {**message, "properties": properties}
        sent = console.ask("POST", "/api/exchanges/%2F/amq.default/publish", body)
        answer = sent if template.endswith("publish") else console.ask("POST", path, ask)
        assert answer.status == 200, answer.body
        assert not decoder.faults(decoder.posts[template], answer.json)


@pytest.mark.parametrize(("decoder", "path"), cases("failures"))
def test_failed_checks_are_read(bare: LocalConsole, decoder: Decoder, path: str) -> None:
    with low_on_disk(bare.broker):
        assert not decoder.faults("[node]", bare.get("/api/nodes"))
        with low_on_memory(bare.broker):
            answer = bare.ask("GET", path)
    assert answer.status == 503
    assert not decoder.faults(decoder.failures[path], answer.json)


def test_tags_of_the_cluster_are_those_of_its_parameter(everything, bare: LocalConsole) -> None:
    console, _ = everything
    assert console.get("/api/overview")["cluster_tags"] == {"region": "north"}
    assert bare.get("/api/overview")["cluster_tags"] == {}
    path = "/api/global-parameters/cluster_tags"
    assert bare.ask("PUT", path, {"value": "no object"}).status == 201
    assert bare.get("/api/overview")["cluster_tags"] == {}
    assert bare.ask("DELETE", path).status == 204


def test_parts_of_memory_give_its_total(bare: LocalConsole) -> None:
    path = f"/api/nodes/{quote(node_name())}/memory"
    memory, shares = bare.get(path)["memory"], bare.get(f"{path}/relative")["memory"]
    total = memory.pop("total")["rss"]
    assert memory.pop("strategy") == "rss"
    assert sum(memory.values()) == total > 0
    assert shares.pop("total") == 100
    assert shares.keys() == memory.keys()
    assert all(0 <= share <= 100 for share in shares.values())


def test_logins_of_versions_that_rabbitmq_does_not_tell_apart_are_summed(everything) -> None:
    console, names = everything
    path = f"/api/auth/attempts/{quote(names['node'][0])}"
    rows = {one["protocol"]: one for one in console.get(path)}
    assert rows.keys() == {"amqp", "amqp091", "http"}
    assert rows["amqp091"]["auth_attempts_succeeded"] == 4  # 0-8, 0-9, 0-9-1, and over TLS.
    assert rows["amqp"]["auth_attempts_succeeded"] == 2  # 0-10, and the one that is gone.
    (source,) = [one for one in console.get(f"{path}/source") if one["protocol"] == "amqp091"]
    assert source["auth_attempts"] == 4


def test_every_path_is_one_of_the_table() -> None:
    """A route that a client reads, and whose types no file has, is named here."""
    served = {shape(one.path) for one in ROUTES if one.method == "GET"}
    read = {shape(path.partition("?")[0]) for one in DECODERS for path in one.answers}
    checks = {path for path in read if path.startswith("/api/health/checks/")}
    assert read - checks <= served
    unread = {path for path in served - read if not UNREAD.match(path)}
    assert not unread


def shape(path: str) -> str:
    """Return a path without the names of its parameters."""
    return re.sub(r"\{\w+\}", "{}", path.rstrip("/"))


def test_a_decoder_finds_each_kind_of_fault(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        """
        [answers]
        [names]
        port = "u16 | digits"
        [types.page]
        "*" = "items"
        [types.row]
        text = "name"
        "{i16} ?" = "numbers"
        "'on' | 'off' ~" = "state"
        port = "port"
        """
    )
    decoder = Decoder(file)
    row = {"name": "n", "numbers": {"a": -1}, "state": "on", "port": "15672"}
    assert not decoder.faults("row", row)
    assert not decoder.faults("page of [row]", {"items": [{"name": "n", "port": 1}]})
    for wrong in (
        {"name": None},
        {"name": 1},
        {"numbers": {"a": 1 << 15}},
        {"numbers": []},
        {"state": None},
        {"state": "out"},
        {"port": True},
        {"port": -1},
        {"port": "x"},
    ):
        assert decoder.faults("[row]", [{**row, **wrong}]), wrong
    assert decoder.faults("row", {"port": 1}) == [".name: missing"]
    assert decoder.faults("row", []) == [": [] is not an object"]
