# SPDX-License-Identifier: Apache-2.0
"""Policies of a RabbitMQ, by its management API, and the same ones of a Headrace."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Protocol

from headrace.model.policy.parameters import Key
from headrace.model.policy.rules import read_rules

if TYPE_CHECKING:
    from headrace.testing import LocalBroker

ANSWER_S_MAX = 20.0
AUTHORIZATION = "Basic Z3Vlc3Q6Z3Vlc3Q="  # guest:guest
PATHS = {"policy": "policies", "operator_policy": "operator-policies"}


class Laws(Protocol):
    """Where policies of the virtual host / are laid down."""

    def set(self, component: str, name: str, policy: dict[str, Any] | None) -> None:
        """Set a policy, of operators too; None clears it."""


class TheirLaws:
    """RabbitMQ's."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/api/"

    def set(self, component: str, name: str, policy: dict[str, Any] | None) -> None:
        path = f"{PATHS[component]}/%2F/{name}"
        try:
            self.ask("DELETE" if policy is None else "PUT", path, policy)
        except urllib.error.HTTPError as error:
            if policy is not None or error.code != 404:
                raise

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Say something to the management API, and return the answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": AUTHORIZATION, "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:
            found = answer.read()
        return json.loads(found) if found else None


class OurLaws:
    """Headrace's."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.parameters: dict[Key, Any] = {}

    def set(self, component: str, name: str, policy: dict[str, Any] | None) -> None:
        key = Key("/", component, name)
        if policy is None:
            self.parameters.pop(key, None)
        else:
            self.parameters[key] = policy
        done = threading.Event()

        def change() -> None:
            broker = self.broker._broker
            vhost = broker.vhosts["/"]
            settings = broker.settings
            vhost.set_rules(
                read_rules(
                    self.parameters,
                    "/",
                    default_queue_type=settings.default_queue_type,
                    unknown_arguments=settings.unknown_arguments,
                )
            )
            broker.counters.generation += 1
            broker.reactor.turn()
            done.set()

        loop = self.broker._loop
        assert loop is not None
        loop.call_soon_threadsafe(change)
        assert done.wait(ANSWER_S_MAX)
