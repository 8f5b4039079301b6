# SPDX-License-Identifier: Apache-2.0
"""Operations on routes: the queues that a message would reach, and the objects around another."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from headrace.model.exchange.binding import EXCHANGE, QUEUE
from headrace.model.queue.queue import Queue
from headrace.server.config.json_values import as_json
from headrace.server.management.call import is_internal
from headrace.server.management.fields import read_name, read_table
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.management_rows import GraphEdge, GraphNode
    from headrace.model.exchange.binding import Binding, BindingDestination
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()

QUEUES_SHOWN_MAX = 1000  # Queues of one route.
NODES, NODES_MAX = 40, 200  # Objects of a topology: by default, and at most.
EDGES_MAX = 1000
EDGES_OF_NODE = 200  # Edges of each object that are examined.
KEYS_MAX = 32  # Further routing keys of one message.
COPIES = ("CC", "BCC")  # Headers with further routing keys.
BINDING, ALTERNATE, DEAD_LETTER = "binding", "alternate", "dead-letter"


# --- Routes ---------------------------------------------------------------------------------------


@operation("route", LOOK, reads=True, fields="`vhost`, `exchange`, `routing_key`, `headers`")
def route(call: Call) -> JsonLine:
    """Return the queues that a message would reach. Nothing is published or counted.

    The exchanges match as for a message, except that duplicates are not detected. If an exchange
    routes at random, each answer differs.
    """
    vhost = call.vhost()
    first = vhost.find_exchange(read_name(call, "exchange", ""))
    key = read_name(call, "routing_key", "")
    headers = read_table(call.request.get("headers"), "headers")
    reached: dict[Queue, None] = {}
    vhost.follow(first, key, lambda: headers, reached, copies=read_copy_keys(call, headers))
    queues = [queue for queue in reached if not is_internal(queue)]
    return {
        "routed": bool(queues),
        "count": len(queues),
        "queues": [queue.name for queue in queues[:QUEUES_SHOWN_MAX]],
    }


def read_copy_keys(call: Call, headers: dict[str, object]) -> list[str]:
    """Return the routing keys in the headers CC and BCC."""
    keys: list[str] = []
    for name in COPIES:
        routing_keys = headers.get(name, [])
        if not isinstance(routing_keys, list) or not all(
            isinstance(key, str) for key in routing_keys
        ):
            call.refuse("bad-request", f"header '{name}' is not a list of routing keys")
        keys += routing_keys
    if len(keys) > KEYS_MAX:
        call.refuse("limit", f"a message may have at most {KEYS_MAX} further routing keys")
    return keys


# --- Topology -------------------------------------------------------------------------------------


@operation(
    "show topology",
    LOOK,
    reads=True,
    fields="`vhost`, `kind`: `exchange` or `queue`, `name`, `count` (40)",
)
def show_topology(call: Call) -> Steps:
    """Return the objects around an exchange or a queue, the nearest first.

    Bindings are followed in both directions, and alternate and dead-letter exchanges in theirs.
    ``cut`` is true if there are more than ``count`` objects, or more edges than are examined.
    """
    vhost = call.vhost()
    kind, name = call.text("kind", EXCHANGE), read_name(call, "name", "")
    nodes_max = call.number("count", NODES, minimum=1, maximum=NODES_MAX)
    start: BindingDestination
    if kind == EXCHANGE:
        start = vhost.find_exchange(name)
    elif kind == QUEUE and name in vhost.queues:
        start = vhost.queues[name]
    else:
        call.refuse("not-found", f"no {kind} '{name}' in vhost '{vhost.name}'")
    graph = Topology(vhost, nodes_max)
    yield from graph.walk(start)
    return {"nodes": graph.nodes(), "edges": graph.edges, "cut": graph.cut}


class Topology:
    """The graph of the objects around a given one."""

    def __init__(self, vhost: VirtualHost, nodes_max: int) -> None:
        self._vhost = vhost
        self._nodes_max = nodes_max
        self._numbers: dict[BindingDestination, int] = {}
        self._edges: dict[tuple[BindingDestination, BindingDestination, str, object], None] = {}
        self.edges: list[GraphEdge] = []
        self.cut = False  # Objects or edges are left out.

    def walk(self, start: BindingDestination) -> Iterator[None]:
        """Find the nearest objects, and the edges between them; each yield is one object."""
        pending = deque([start])
        self._numbers[start] = 0
        while pending:
            node = pending.popleft()
            yield None
            for source, destination, kind, binding in self._iterate_edges(node):
                neighbour = destination if source is node else source
                if neighbour not in self._numbers:
                    if len(self._numbers) >= self._nodes_max or len(self.edges) >= EDGES_MAX:
                        self.cut = True
                        continue
                    self._numbers[neighbour] = len(self._numbers)
                    pending.append(neighbour)
                self._add_edge(source, destination, kind, binding)

    def _add_edge(
        self,
        source: BindingDestination,
        destination: BindingDestination,
        kind: str,
        binding: Binding | None,
    ) -> None:
        edge = (source, destination, kind, binding)
        if edge in self._edges:
            return
        if len(self._edges) >= EDGES_MAX:
            self.cut = True
            return
        self._edges[edge] = None
        self.edges.append(
            {
                "from": self._numbers[source],
                "to": self._numbers[destination],
                "what": kind,
                "routing_key": "" if binding is None else binding.routing_key,
                "arguments": {} if binding is None else as_json(binding.arguments or {}),
            }
        )

    def _iterate_edges(
        self, node: BindingDestination
    ) -> Iterator[tuple[BindingDestination, BindingDestination, str, Binding | None]]:
        """Yield the edges of an object, up to ``EDGES_OF_NODE`` bindings in each direction."""
        for binding in self._first_bindings(self._vhost.bindings_to(node)):
            yield binding.source, node, BINDING, binding
        if isinstance(node, Queue):
            name, kind = node.dead_letter_exchange, DEAD_LETTER
        else:
            for binding in self._first_bindings(node.bindings):
                if not (
                    isinstance(binding.destination, Queue) and is_internal(binding.destination)
                ):
                    yield node, binding.destination, BINDING, binding
            name, kind = node.alternate, ALTERNATE
        target = None if name is None else self._vhost.exchanges.get(name)
        if target is not None:
            yield node, target, kind, None

    def _first_bindings(self, bindings: Iterable[Binding]) -> list[Binding]:
        first = list(itertools.islice(bindings, EDGES_OF_NODE + 1))
        if len(first) > EDGES_OF_NODE:
            self.cut = True
        return first[:EDGES_OF_NODE]

    def nodes(self) -> list[GraphNode]:
        """Return the objects in the order of their numbers."""
        return [
            {
                "kind": QUEUE if isinstance(node, Queue) else EXCHANGE,
                "name": node.name,
                "type": "" if isinstance(node, Queue) else node.type,
                "ready": node.message_count() if isinstance(node, Queue) else 0,
            }
            for node in self._numbers
        ]
