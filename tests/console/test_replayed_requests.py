# SPDX-License-Identifier: Apache-2.0
"""Requests of clients that cannot run here, as their documents and stored sources tell them.

Each answer has the status that the client takes for success, and what its decoder needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import jsonschema
import pytest

from headrace.client import blocking
from headrace.console.api.routes import ROUTES
from headrace.console.http.routes import Router
from support.answer_schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

ROUTER = Router(ROUTES)
BERT = {"Accept": "application/bert, application/json;q=0.1"}
GO = {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}
EVERY = {"configure": ".*", "write": ".*", "read": ".*"}
NODE = "{node}"  # Stands for the name of the node in a path.


class Step(NamedTuple):
    """One request, and the statuses of success."""

    method: str
    path: str
    body: object = None
    statuses: tuple[int, ...] = (200,)


def get(*paths: str) -> tuple[Step, ...]:
    """Return steps that read."""
    return tuple(Step("GET", path) for path in paths)


def made(path: str, body: object, method: str = "PUT") -> tuple[Step, ...]:
    """Return steps that make an object, read it, make it once more, and read it."""
    again = Step(method, path, body, (204,) if method == "PUT" else (201,))
    return (Step(method, path, body, (201,)), Step("GET", path), again, Step("GET", path))


def deleted(path: str) -> tuple[Step, ...]:
    """Return steps that delete an object and find it gone; once more is no success."""
    gone = Step("GET", path, None, (404,))
    return (Step("DELETE", path, None, (204,)), gone, Step("DELETE", path, None, (404,)))


V = "/api/vhosts/of%2Fgo"
BINDINGS = "/api/bindings/of%2Fgo/e/x%20y/q/a%2Fb"
POLICY = {"pattern": "^a", "apply-to": "all", "priority": 0, "definition": {"max-length": 10}}
#: Terraform's provider, and whatever else is built on Go's rabbit-hole.
RABBIT_HOLE = (
    *made(V, {"description": "", "tags": [], "default_queue_type": "", "tracing": False}),
    *made("/api/users/ada", {"name": "ada", "tags": ["management"], "password": "of-terraform"}),
    Step("PUT", "/api/users/ada", {"name": "ada", "tags": "management,monitoring"}, (204,)),
    *made("/api/permissions/of%2Fgo/ada", EVERY),
    Step("PUT", "/api/permissions/of%2Fgo/guest", EVERY, (204,)),  # It added the virtual host.
    Step(
        "PUT",
        "/api/topic-permissions/of%2Fgo/ada",
        {"exchange": "amq.topic", "write": ".*", "read": ".*"},
        (201,),
    ),
    *get("/api/topic-permissions/of%2Fgo/ada"),
    *made(
        "/api/exchanges/of%2Fgo/x%20y",
        {"type": "topic", "durable": True, "auto_delete": False, "arguments": {}},
    ),
    *made(
        "/api/queues/of%2Fgo/a%2Fb",
        {"type": "", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}},
    ),
    Step(
        "POST",
        BINDINGS,
        {
            "source": "x y",
            "vhost": "of/go",
            "destination": "a/b",
            "destination_type": "queue",
            "routing_key": "eu.#",
            "arguments": {},
            "properties_key": "",
        },
        (201,),
    ),
    *get(BINDINGS, f"{BINDINGS}/eu.%23"),
    *made("/api/policies/of%2Fgo/p", {"vhost": "of/go", "name": "p", **POLICY}),
    *made("/api/operator-policies/of%2Fgo/o", {"vhost": "of/go", "name": "o", **POLICY}),
    Step("PUT", "/api/vhost-limits/of%2Fgo/max-connections", {"value": 10}, (201, 204)),
    *get("/api/vhost-limits/of%2Fgo", "/api/users/", "/api/permissions/", "/api/bindings/"),
    *get("/api/cluster-name/", "/api/topic-permissions/", "/api/vhosts/", "/api/nodes/"),
    *get("/api/policies/", "/api/operator-policies/", "/api/exchanges/", "/api/queues/"),
    *get("/api/connections/", "/api/channels/", "/api/parameters/", "/api/whoami/"),
    *get("/api/health/checks/alarms", "/api/health/checks/local-alarms", "/api/feature-flags/"),
    *get("/api/overview", "/api/definitions/"),
    Step(
        "PUT",
        "/api/parameters/federation-upstream/of%2Fgo/u",
        {"value": {"uri": "amqp://elsewhere"}},
        (400,),
    ),
    Step(
        "PUT",
        "/api/parameters/shovel/of%2Fgo/s",
        {"value": {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "a"}},
        (400,),
    ),
    *deleted(f"{BINDINGS}/eu.%23"),
    *deleted("/api/policies/of%2Fgo/p"),
    *deleted("/api/operator-policies/of%2Fgo/o"),
    Step("DELETE", "/api/vhost-limits/of%2Fgo/max-connections", None, (204,)),
    *deleted("/api/queues/of%2Fgo/a%2Fb"),
    *deleted("/api/exchanges/of%2Fgo/x%20y"),
    Step("DELETE", "/api/topic-permissions/of%2Fgo/ada", None, (204,)),
    *deleted("/api/permissions/of%2Fgo/ada"),
    *deleted("/api/users/ada"),
    *deleted(V),
)
KEDA = get(
    "/api/queues/%2F/orders",
    "/api/queues/%2F?page=1&use_regex=true&pagination=false&name=%5Eord&page_size=100",
)
TELEGRAF = get(
    *("/api/overview", "/api/nodes", f"/api/nodes/{NODE}/memory", "/api/queues", "/api/exchanges"),
    "/api/federation-links",
)
EXPORTER = get(  # kbudde/rabbitmq_exporter.
    *("/api/overview?sort=", "/api/nodes?sort=", "/api/queues?sort=", "/api/exchanges?sort="),
    *("/api/connections?sort=", "/api/federation-links?sort=", "/api/shovels?sort="),
    "/api/aliveness-test/%2F",
)
DATADOG = get(
    *("/api/vhosts", "/api/overview", "/api/exchanges", "/api/queues", "/api/nodes"),
    *("/api/queues/%2F/orders/bindings", "/api/connections?columns=vhost,state"),
    "/api/aliveness-test/%2F",
)
ZABBIX = get(
    *("/api/overview", f"/api/nodes/{NODE}?memory=true", "/api/health/checks/alarms"),
    *("/api/health/checks/local-alarms", "/api/health/checks/certificate-expiration/1/months"),
    *("/api/health/checks/virtual-hosts", "/api/health/checks/node-is-quorum-critical"),
    *("/api/exchanges", "/api/queues"),
)
HOP = get(  # Java's client of Spring AMQP.
    *("/api/overview", "/api/nodes/", "/api/connections/", "/api/channels/", "/api/vhosts/"),
    *("/api/users/", "/api/exchanges/", "/api/exchanges/%2F/", "/api/queues/", "/api/queues/%2F/"),
    *("/api/bindings/", "/api/bindings/%2F/", "/api/permissions/", "/api/policies/"),
    *("/api/whoami/", "/api/health/checks/alarms/", "/api/aliveness-test/%2F/"),
)
EASY_NET_Q = (
    Step(
        "PUT",
        "/api/queues/%2F/easy",
        {"auto_delete": False, "durable": True, "arguments": {}},
        (201,),
    ),
    *get("/api/queues?page=1&page_size=10&name=ea&use_regex=false&sort=name&sort_reverse=false"),
    *get("/api/queues/%2F/easy?lengths_age=60&lengths_incr=10&msg_rates_age=60&msg_rates_incr=10"),
    *get("/api/queues?disable_stats=true&enable_queue_totals=true", "/api/overview"),
    Step(
        "POST",
        "/api/exchanges/%2F/amq.default/publish",
        {"properties": {}, "routing_key": "easy", "payload": "p", "payload_encoding": "string"},
    ),
    Step(
        "POST",
        "/api/queues/%2F/easy/get",
        {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", "truncate": 50000},
    ),
    Step("DELETE", "/api/queues/%2F/easy/contents", None, (204,)),
    Step("DELETE", "/api/queues/%2F/easy?if-empty=true&if-unused=true", None, (204,)),
    Step("PUT", "/api/users/easy", {"password": "of-easy-net-q", "tags": "administrator"}, (201,)),
    Step("POST", "/api/users/bulk-delete", {"users": ["easy"]}, (204,)),
)
N_SERVICE_BUS = (
    *get("/api/overview", "/api/feature-flags", "/api/queues/%2F/orders"),
    *get(
        "/api/queues/%2F/?page=1&page_size=500", "/api/exchanges/%2F/amq.topic/bindings/destination"
    ),
    Step(
        "PUT",
        "/api/policies/%2F/nsb.orders.delivery-limit",
        {
            "name": "nsb.orders.delivery-limit",
            "apply-to": "quorum_queues",
            "pattern": "^orders$",
            "priority": 0,
            "definition": {"delivery-limit": -1},
        },
        (201,),
    ),
    Step("DELETE", "/api/policies/%2F/nsb.orders.delivery-limit", None, (204,)),
)
RABBITMQADMIN_2 = (
    *get("/api/overview", "/api/nodes", f"/api/nodes/{NODE}", f"/api/nodes/{NODE}/memory"),
    *get("/api/vhosts", "/api/vhosts/%2F", "/api/users", "/api/users/guest", "/api/permissions"),
    *get("/api/permissions/%2F/guest", "/api/users/guest/permissions", "/api/topic-permissions"),
    *get("/api/connections", "/api/vhosts/%2F/connections", "/api/connections/username/guest"),
    *get("/api/channels", "/api/consumers", "/api/consumers/%2F", "/api/queues/detailed"),
    *get("/api/queues", "/api/queues/%2F", "/api/exchanges", "/api/exchanges/%2F/amq.topic"),
    *get("/api/bindings", "/api/queues/%2F/orders/bindings", "/api/policies/%2F"),
    *get("/api/exchanges/%2F/amq.topic/bindings/source", "/api/operator-policies/%2F"),
    *get("/api/parameters/shovel", "/api/parameters/federation-upstream", "/api/global-parameters"),
    *get(
        "/api/user-limits", "/api/vhost-limits", "/api/user-limits/guest", "/api/vhost-limits/%2F"
    ),
    *get("/api/feature-flags", "/api/deprecated-features", "/api/deprecated-features/used"),
    *get("/api/shovels", "/api/shovels/%2F", "/api/federation-links", "/api/federation-links/%2F"),
    *get("/api/stream/connections", "/api/stream/publishers/%2F", "/api/stream/consumers"),
    *get(f"/api/auth/attempts/{NODE}", f"/api/auth/attempts/{NODE}/source", "/api/whoami"),
    *get("/api/health/checks/alarms", "/api/health/checks/local-alarms", "/api/cluster-name"),
    *get("/api/health/checks/node-is-quorum-critical", "/api/health/checks/virtual-hosts"),
    *get("/api/health/checks/protocol-listener/amqp", "/api/definitions", "/api/definitions/%2F"),
    Step("PUT", "/api/cluster-name", {"name": "of rabbitmqadmin"}, (204,)),
    Step("PUT", "/api/feature-flags/stream_queue/enable", {"name": "stream_queue"}, (204,)),
    Step("PUT", "/api/vhosts/rust", {"name": "rust", "default_queue_type": "quorum"}, (201,)),
    Step("POST", "/api/vhosts/rust/deletion/protection", None, (204,)),
    Step("DELETE", "/api/vhosts/rust", None, (412,)),
    Step("DELETE", "/api/vhosts/rust/deletion/protection", None, (204,)),
    Step("DELETE", "/api/vhosts/rust", None, (204,)),
    Step(
        "PUT",
        "/api/queues/%2F/rust",
        {
            "name": "rust",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum"},
        },
        (201,),
    ),
    Step("POST", "/api/rebalance/queues", {}, (204,)),
    Step("DELETE", "/api/queues/%2F/rust", None, (204,)),
    Step("POST", "/api/definitions", {"queues": [], "vhosts": [{"name": "/"}]}, (204,)),
)
CLIENTS: dict[str, tuple[tuple[Step, ...], dict[str, str]]] = {
    "rabbit-hole": (RABBIT_HOLE, GO),
    "KEDA": (KEDA, GO),
    "Telegraf": (TELEGRAF, {**GO, "Accept": "application/json"}),
    "rabbitmq_exporter": (EXPORTER, {**GO, **BERT}),
    "Datadog": (DATADOG, {"Accept": "*/*"}),
    "Zabbix": (ZABBIX, {}),
    "Hop": (HOP, {"Accept": "application/json", "Content-Type": "application/json"}),
    "EasyNetQ": (EASY_NET_Q, {"Content-Type": "application/json"}),
    "NServiceBus": (N_SERVICE_BUS, {"Content-Type": "application/json; charset=utf-8"}),
    "rabbitmqadmin 2": (RABBITMQADMIN_2, {"Accept": "*/*", "Content-Type": "application/json"}),
}


@pytest.fixture(scope="module", autouse=True)
def orders(console: LocalConsole) -> Iterator[None]:
    """A queue with a message and a consumer."""
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("orders", durable=True)
        channel.publish(b"m", routing_key="orders")
        yield


@pytest.mark.parametrize("client", CLIENTS)
def test_every_request_is_answered(console: LocalConsole, client: str) -> None:
    (node,) = console.get("/api/nodes")
    steps, headers = CLIENTS[client]
    for step in steps:
        path = step.path.replace(NODE, quote(node["name"], safe=""))
        answer = console.ask(step.method, path, step.body, headers=headers)
        assert answer.status in step.statuses, (step, answer.status, answer.body)
        if answer.status >= 400:
            assert set(answer.json) == {"error", "reason"}, step
        elif answer.status == 200:
            check(step, answer.json)


def check(step: Step, found: Any) -> None:
    """Assert that an answer has what decoders need."""
    path, _, query = step.path.partition("?")
    route, _ = ROUTER.find(step.method, path)
    schema = route.answer or SCHEMAS.get(route.path)
    if schema is None or "columns=" in query or "disable_stats=" in query:
        return  # The client asks for less.
    if "page=" in query:
        assert (found["page"], found["page_count"]) == (1, 1), step
        found = found["items"]
    jsonschema.validate(found, schema)
    if step.method == "GET" and isinstance(found, list):
        assert all(isinstance(row, dict) for row in found)


def test_a_scaler_sees_depth_and_rates(console: LocalConsole) -> None:
    """KEDA decodes into integers and floats, and takes several pages for an error."""
    (row,) = console.get(KEDA[1].path)["items"]
    for name in ("messages", "messages_ready", "messages_unacknowledged"):
        assert type(row[name]) is int
    for name in ("publish_details", "deliver_get_details"):
        assert isinstance(row["message_stats"][name]["rate"], float)


def test_a_binding_is_found_by_its_location(console: LocalConsole) -> None:
    """Terraform keeps the last segment of Location, and looks for it in the list."""
    path = "/api/bindings/%2F/e/amq.topic/q/orders"
    for body in (
        {"routing_key": "", "arguments": {}},
        {"routing_key": "a b/%~", "arguments": {}},
        {"routing_key": "k", "arguments": {"x-match": "all", "n": 5}},
    ):
        answer = console.ask("POST", path, body)
        key = answer.headers["Location"].rpartition("/")[2]
        (row,) = [one for one in console.get(path) if one["routing_key"] == body["routing_key"]]
        assert (answer.status, row["properties_key"]) == (201, key)
        assert row["arguments"] == body["arguments"]
        assert console.ask("DELETE", f"{path}/{quote(key, safe='')}").status == 204
