# SPDX-License-Identifier: Apache-2.0
"""The data directory: who is in it, and how a virtual host gets its store."""

import logging
from pathlib import Path
from typing import Any

from headrace.gateway.access import hash_password
from headrace.model.definitions import Definitions, NoDefinitions
from headrace.model.ports import Store
from headrace.model.queue import Queue
from headrace.model.stream import Stream, StreamLog
from headrace.model.tally import Tally
from headrace.model.users import Account, Permission
from headrace.model.vhost import VirtualHost
from headrace.server.settings import Settings
from headrace.store.users import UserDirectory

log = logging.getLogger(__name__)

EVERYTHING = Permission(".*", ".*", ".*")


class Storage:
    """What is kept, and where. With the setting ``memory``, nothing is."""

    def __init__(self, settings: Settings, tally: Tally) -> None:
        self.settings = settings
        self.tally = tally
        self.stores: dict[str, Store] = {}
        self.data: Path | None = None
        self.users = UserDirectory(self.data)
        self.definitions: Definitions = NoDefinitions()
        if self.users.is_empty():
            self.make_first_user()

    def make_first_user(self) -> None:
        """Give a new data directory its default user and virtual host."""
        settings = self.settings
        if settings.default_vhost:
            self.users.add_vhost(settings.default_vhost)
        if settings.default_user:
            account = Account(
                settings.default_user, hash_password(settings.default_pass), ("administrator",)
            )
            self.users.add_user(account)
            if settings.default_vhost:
                self.users.set_permission(account.name, settings.default_vhost, EVERYTHING)

    def open_store(self, vhost: str) -> Store:
        """Return the store of a virtual host."""
        store = self.stores[vhost] = Store()
        return store

    def delete_store(self, vhost: str) -> None:
        """The virtual host is no more."""
        self.stores.pop(vhost).close()

    def make_stream(self, host: str, name: str, **options: Any) -> Queue:
        """Make a queue of type stream."""
        return Stream(name, StreamLog(), **options)

    def recover(self, vhost: VirtualHost) -> None:
        """Give a virtual host's queues back what they hold."""
        queues = {queue.id: queue for queue in vhost.queues.values() if queue.durable}
        store = vhost.store
        for queue_id, message, arrived_ms in store.recover():
            queue = queues.get(queue_id)
            if message.seq >= self.tally.next_seq:
                self.tally.next_seq = message.seq + 1
            if queue is None:
                store.settle(queue_id, message.seq, message.position)
            else:
                queue.restore(message, arrived_ms)

    def close(self) -> None:
        """Write what is left and let go of the files."""
        for store in self.stores.values():
            store.close()
        self.stores.clear()
        self.users.close()
