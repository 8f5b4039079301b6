# SPDX-License-Identifier: Apache-2.0
"""Logins on the management socket, and what a user with a ticket may do and see."""

from __future__ import annotations

import contextlib
import json
import pkgutil
import re
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.blocking import connect
from headrace.gateway.security.access import Access
from headrace.gateway.security.remote_peer import RemotePeer
from headrace.gateway.security.throttle import HELD_OF_NAME_MAX
from headrace.model.policy.accounts import Account
from headrace.operator_logins import IDLE_S, LIFE_S
from headrace.server.management import resources, tickets
from headrace.server.management.operations import OPERATIONS, RESOURCES
from headrace.server.management.resources.logins import parse_peer
from headrace.server.management.ticket_file import StoredTicket, TicketFile
from headrace.server.management.tickets import Tickets
from headrace.store.catalog.users import UserDirectory
from headrace.testing import LocalBroker
from headrace.user_tags import ADMINISTER, LOOK, MONITOR, POLICY, USE
from support.brokers.broker_process import until
from support.certificates_and_tokens import RESOURCE, Issuer
from support.management_socket import PEER, ManagementClient, OperationRefused, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

TAGS = ("", "management", "policymaker", "monitoring", "administrator", "viewer")
PASSWORD = "secret"


def add_user(
    operator: ManagementClient, name: str, tags: str, permissions: dict[str, str] | None = None
) -> ManagementClient:
    """Add a user; return a connection that acts as it."""
    operator.ask("put user", name=name, password=PASSWORD, tags=tags)
    for vhost, pattern in (permissions or {}).items():
        given = {"configure": pattern, "write": pattern, "read": pattern}
        operator.ask("put permission", user=name, vhost=vhost, **given)
    return operator.login(name, PASSWORD)


# --- Logins ---------------------------------------------------------------------------------------


def test_a_login_gives_a_ticket_that_tells_who_one_is(operator: ManagementClient) -> None:
    operator.ask("put vhost", name="shop")
    ada = add_user(operator, "ada", "management", {"shop": ".*"})
    told = {"user": "ada", "tags": ["management"], "system": False, "vhosts": ["shop"]}
    assert ada.ask("whoami") == {**told, "by_token": False, "sees_all": False}
    assert operator.ask("whoami")["system"] is True
    assert ada.ask("logout") == {}
    with pytest.raises(OperationRefused, match="the ticket is unknown, or has ended"):
        ada.ask("whoami")


@pytest.mark.parametrize(
    "fields",
    [
        {"username": "ada", "password": "wrong"},
        {"username": "none", "password": PASSWORD},
        {"username": "", "password": ""},
        {"username": "ada\0ada", "password": PASSWORD},
        {"username": "ada\ud800", "password": PASSWORD},
        {"username": "guest", "password": "guest", "peer": "203.0.113.9:4711"},
        {"token": "eyJhbGciOiJub25lIn0.e30."},
        {"username": "ada", "password": "x" * 2000},
    ],
)
def test_every_wrong_login_has_the_same_answer(
    operator: ManagementClient, fields: dict[str, str]
) -> None:
    add_user(operator, "ada", "management").close()
    with pytest.raises(OperationRefused) as refused:
        operator.ask("login", **{"peer": PEER, "protocol": "http", **fields})
    assert (refused.value.code, refused.value.text) == ("refused", "the login was refused")


@pytest.mark.parametrize("peer", ["", "here", "127.0.0.1", "127.0.0.1:x", "1.2.3:5", "::1:99999"])
def test_a_login_says_where_the_client_is(operator: ManagementClient, peer: str) -> None:
    fields = {"username": "guest", "password": "guest", "peer": peer}
    assert refusal(operator, "login", **fields) == "bad-request"


def test_guest_has_no_rights_from_elsewhere_with_a_ticket_got_here(
    operator: ManagementClient,
) -> None:
    guest = operator.login("guest", "guest")
    assert guest.ask("whoami")["user"] == "guest"
    assert refusal(guest, "whoami", peer="203.0.113.9:4711") == "refused"
    assert refusal(guest, "whoami", peer="[::ffff:127.0.0.1]:5") == ""
    assert refusal(guest, "whoami", peer="nowhere") == "bad-request"


def test_a_ticket_is_good_for_the_address_of_its_login(operator: ManagementClient) -> None:
    ada = add_user(operator, "ada", "management")
    assert refusal(ada, "whoami", peer="203.0.113.9:4711") == "refused"
    assert refusal(ada, "whoami", peer=PEER.rpartition(":")[0] + ":9") == ""


def test_a_user_without_a_tag_of_management_is_not_let_in(operator: ManagementClient) -> None:
    with pytest.raises(OperationRefused, match="user 'ada' has none of the tags administrator, "):
        add_user(operator, "ada", "impersonator", {"/": ".*"})


def test_a_token_logs_in_with_its_scopes_and_the_ticket_ends_with_it(data: Path) -> None:
    issuer = Issuer()
    keys = issuer.write(data.parent / "jwks.json")
    trust = {"oauth_jwks": str(keys), "oauth_resource_server_id": RESOURCE}
    scopes = ("tag:management", "configure:%2F/a*", "write:%2F/a*", "read:%2F/a*")
    with LocalBroker(data, **trust, oauth_issuer="https://issuer.example"):
        operator = ManagementClient(data / "management.sock")

        def login(*scopes: str, **claims: Any) -> ManagementClient:
            token = issuer.token(*scopes, iss="https://issuer.example", **claims)
            fields = {"peer": PEER, "protocol": "http"}
            ticket = operator.ask("login", token=token, **fields)["ticket"]
            user = ManagementClient(operator.path, ticket)
            operator.users.append(user)
            return user

        tess = login(*scopes)
        told = tess.ask("whoami")
        assert (told["user"], told["tags"], told["vhosts"]) == ("tess", ["management"], ["/"])
        assert told["by_token"] is True
        assert tess.ask("declare queue", name="a")["created"] is True
        assert refusal(tess, "declare queue", name="b") == "refused"
        with pytest.raises(OperationRefused, match="user 'tess' has none of the tags"):
            login("configure:*/*")
        with pytest.raises(OperationRefused, match="the login was refused"):
            login(*scopes, lives_s=-5)
        brief = login(*scopes, lives_s=1)
        until(lambda: refusal(brief, "whoami"), "refused")
        operator.close()


def test_the_throttle_of_connections_counts_logins_of_the_console(data: Path) -> None:
    log = data.parent / "audit.log"
    limits = {"login_failures_free": 1, "login_delay_s": 1.0, "login_delay_max_s": 1.0}
    with LocalBroker(data, audit_log=str(log), **limits):
        clients = [ManagementClient(data / "management.sock") for _ in range(HELD_OF_NAME_MAX + 1)]
        wrong = {"username": "guest", "password": "wrong", "peer": "198.51.100.7:1"}
        assert refusal(clients[0], "login", **wrong) == "refused"
        for client in clients:
            client.send("login", **wrong)
        for client in clients:
            with pytest.raises(OperationRefused, match="the login was refused"):
                client.line()
        clients[0].login("guest", "guest").close()  # From another address.
        for client in clients:
            client.close()
    assert "too many logins from 198.51.100.7 failed" in log.read_text()


@pytest.mark.parametrize("change", ["password", "tags", "deletion"])
def test_a_ticket_ends_with_what_it_was_got_for(operator: ManagementClient, change: str) -> None:
    ada = add_user(operator, "ada", "management", {"/": ".*"})
    if change == "password":
        operator.ask("put user", name="ada", password="other", tags="management")
    elif change == "tags":
        operator.ask("put user", name="ada", keep_password=True, tags="administrator")
    else:
        operator.ask("delete user", name="ada")
    with pytest.raises(OperationRefused, match="the ticket is unknown, or has ended"):
        ada.ask("whoami")


def test_a_taken_permission_counts_at_once(operator: ManagementClient) -> None:
    ada = add_user(operator, "ada", "management", {"/": ".*"})
    ada.ask("declare queue", name="one")
    operator.ask("delete permission", user="ada", vhost="/")
    assert refusal(ada, "declare queue", name="two") == "not-found"
    assert ada.items("list queues") == []


class Clock:
    """A clock that a test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def directory() -> Iterator[UserDirectory]:
    found = UserDirectory()
    found.add_user(Account("ada", "!", ("management",)))
    found.add_user(Account("bob", "!", ("management",)))
    yield found
    found.close()


@pytest.fixture
def access(directory: UserDirectory) -> Iterator[Access]:
    found = Access(directory)
    yield found
    found.close()


def test_a_ticket_ends_when_it_is_idle_and_after_its_time(access: Access) -> None:
    clock = Clock()
    held = Tickets(access, lambda user: False, clock=clock)
    user = access.admit("ada", RemotePeer())
    idle, used = held.issue(user), held.issue(user)
    assert idle != used
    for _ in range(int(LIFE_S // IDLE_S)):
        clock.now_s += IDLE_S
        assert held.find_user(used) is not None
    assert held.find_user(idle) is None
    clock.now_s += 1.0
    assert held.find_user(used) is None
    assert len(held) == 0


def test_tickets_are_bounded_for_a_user_and_for_all(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tickets, "OF_USER_MAX", 3)
    monkeypatch.setattr(tickets, "TICKETS_MAX", 5)
    held = Tickets(access, lambda user: False)
    ada, bob = access.admit("ada", RemotePeer()), access.admit("bob", RemotePeer())
    of_bob = held.issue(bob)
    of_ada = [held.issue(ada) for _ in range(10)]
    assert [held.find_user(one) is not None for one in of_ada] == [False] * 7 + [True] * 3
    assert held.find_user(of_bob) is not None
    for _ in range(3):
        held.issue(bob)
    assert len(held) == 5


class InlineExecutor(Executor):
    """Runs work before ``submit`` returns, as a fast thread may."""

    def submit(self, work: Any, /, *args: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*args, **options))
        return done


def test_each_change_of_tickets_is_written_however_fast_the_thread_is(
    access: Access, tmp_path: Path
) -> None:
    file = TicketFile(tmp_path)
    held = Tickets(access, lambda user: False, file=file, writer=InlineExecutor())
    ada = held.issue(access.admit("ada", RemotePeer("203.0.113.9", 4711, False)))
    assert len(file.read()) == 1
    held.end(ada)
    assert file.read() == []


def test_tickets_of_accounts_outlive_the_broker(
    access: Access, directory: UserDirectory, tmp_path: Path
) -> None:
    clock = Clock()
    file = TicketFile(tmp_path)
    with ThreadPoolExecutor(1) as writer:

        def broker() -> Tickets:
            return Tickets(access, lambda user: False, clock=clock, file=file, writer=writer)

        first = broker()
        peer = RemotePeer("203.0.113.9", 4711, False)
        ada, bob, gone = (first.issue(access.admit(n, peer)) for n in ("ada", "bob", "ada"))
        ended = first.end(gone)
        assert ended is not None
        ended.result()  # As a logout waits, and then the process is killed.
        text = file.path.read_text()
        assert ada not in text
        assert bob not in text
        assert file.path.stat().st_mode & 0o777 == 0o600
        directory.set_password("bob", "another")
        access.use_snapshot(directory.snapshot())
        second = broker()
        found = second.find_user(ada, peer)
        assert found is not None
        assert found.name == "ada"
        assert second.find_user(ada, RemotePeer("203.0.113.10", 4711, False)) is None
        assert second.find_user(bob) is None
        assert second.find_user(gone) is None
        clock.now_s += IDLE_S - 1
        second.find_user(ada)
        second.close()
        assert broker().find_user(ada) is not None
        file.path.write_bytes(b"{damaged")
        assert len(broker()) == 0


def test_a_ticket_in_use_outlives_a_kill_of_the_broker(
    access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(tickets, "time", SimpleNamespace(time=clock))
    file = TicketFile(tmp_path)
    with ThreadPoolExecutor(1) as writer:

        def broker() -> Tickets:
            return Tickets(access, lambda user: False, clock=clock, file=file, writer=writer)

        killed = broker()
        used, idle = (killed.issue(access.admit("ada", RemotePeer())) for _ in range(2))
        for _ in range(20):  # Twenty minutes with a request each minute.
            writer.submit(lambda: None).result()  # All writes so far end.
            clock.now_s += 60.0
            assert killed.find_user(used) is not None
        after = broker()
        assert after.find_user(used) is not None
        assert after.find_user(idle) is None
        clock.now_s += IDLE_S - IDLE_S / 3
        assert broker().find_user(used) is not None


def test_the_use_of_tickets_is_written_at_most_three_times_in_the_idle_time(
    access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    file = TicketFile(tmp_path)
    writes: list[int] = []

    def fail_to_write(stored: list[StoredTicket]) -> None:
        writes.append(len(stored))
        raise OSError("the disk is full")

    with ThreadPoolExecutor(1) as writer:
        held = Tickets(access, lambda user: False, clock=clock, file=file, writer=writer)
        used = [held.issue(access.admit("ada", RemotePeer())) for _ in range(10)]
        writer.submit(lambda: None).result()
        monkeypatch.setattr(file, "write", fail_to_write)
        for _ in range(int(IDLE_S)):
            clock.now_s += 1.0
            for ticket in used:
                held.find_user(ticket)
                writer.submit(lambda: None).result()
    assert 2 <= len(writes) <= 3


def test_addresses_of_peers() -> None:
    assert parse_peer("203.0.113.9:4711") == RemotePeer("203.0.113.9", 4711, False)
    assert parse_peer("[::1]:80", encrypted=True) == RemotePeer("::1", 80, True, True)
    assert parse_peer("::ffff:127.0.0.1:80") == RemotePeer("127.0.0.1", 80, True)
    assert parse_peer("fe80::1%eth0:80") == RemotePeer("fe80::1", 80, False)
    assert parse_peer("127.0.0.1:" + "9" * 5000) is None


# --- Rights: every operation, tag and permission --------------------------------------------------


def test_every_resource_is_in_the_table_of_operations() -> None:
    names = {module.name for module in pkgutil.iter_modules(resources.__path__)}
    assert {*names, "operation"} == {each.__name__.split(".")[-1] for each in RESOURCES}


def test_every_operation_has_its_rule() -> None:
    assert {rule.tags for rule in OPERATIONS.values()} == {LOOK, USE, MONITOR, POLICY, ADMINISTER}


#: Which tags suffice, written out apart from the rules.
SUFFICE: dict[frozenset[str], set[str]] = {
    LOOK: {"management", "policymaker", "monitoring", "administrator", "viewer"},
    USE: {"management", "policymaker", "monitoring", "administrator"},
    MONITOR: {"monitoring", "administrator", "viewer"},
    POLICY: {"policymaker", "administrator"},
    ADMINISTER: {"administrator"},
}
#: Operations that need no more than a look, so that none gets into that class unseen.
LOOKING = {
    *("login", "logout", "whoami", "health", "status", "events", "sample"),
    *(f"list {kind}" for kind in ("queues", "streams", "exchanges", "bindings", "transactions")),
    *(f"list {kind}" for kind in ("jobs", "leases", "groups", "vhosts", "policies", "limits")),
    *(f"list {kind}" for kind in ("connections", "channels", "consumers", "permissions")),
    *("list topic permissions", "list global parameters", "list alarms", "list certificates"),
    *("cluster status", "list brokers", "list owners"),
    *(f"show {kind}" for kind in ("queue", "exchange", "connection", "vhost", "job")),
    *("route", "show topology", "list batches", "list deduplication"),
}


def test_the_page_has_every_operation_with_its_tags() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/management.md").read_text()
    rows = re.findall(r"^\| `([a-z ]+)` \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    told = {
        operation: (set(re.findall("`([a-z]+)`", tags)), tags.startswith("any"), needs)
        for operation, _, tags, needs in rows
        if operation not in SUFFICE[LOOK]
    }
    assert set(told) == set(OPERATIONS)
    for operation, (tags, is_any, needs) in told.items():
        rule = OPERATIONS[operation]
        assert rule.tags == (LOOK - tags if is_any else tags), operation
        wanted = [f"{need.permission} `{need.field}`" for need in rule.permissions]
        assert not wanted or needs == ", ".join(wanted), operation


def test_a_viewer_has_no_operation_that_changes_something() -> None:
    viewed = {name for name, rule in OPERATIONS.items() if "viewer" in rule.tags}
    assert viewed <= LOOKING


def cells() -> list[Any]:
    """Return each operation with each tag and each set of permissions."""
    return [
        pytest.param(operation, tag, id=f"{operation}-{tag or 'none'}")
        for operation in sorted(OPERATIONS)
        for tag in TAGS
    ]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A broker with a user for each tag, with every permission in / and none in other."""
    data = tmp_path_factory.mktemp("matrix") / "data"
    with LocalBroker(data):
        operator = ManagementClient(data / "management.sock")
        operator.ask("put vhost", name="other")
        operator.ask("put vhost", name="mine")
        users: dict[str, Any] = {}
        for tag in TAGS[1:]:
            add_user(operator, tag, tag, {"/": ".*", "mine": "^mine"}).close()
            users[tag] = operator.login(tag, PASSWORD)
        yield {"operator": operator, "users": users}
        for user in users.values():
            user.close()
        operator.close()


#: Requests that fail behind the check of rights without an effect, or have none: what is refused
#: with another code than "refused" has passed.
REQUESTS: dict[str, dict[str, object]] = {
    "login": {"peer": PEER, "username": "none", "password": "x"},
    "bind": {"source": "mine.x", "destination": "mine.none"},
    "unbind": {"source": "mine.x", "destination": "mine.none"},
    "declare queue": {"name": "mine.q", "arguments": 5},
    "declare exchange": {"name": "mine.x", "arguments": 5},
    "delete queue": {"name": "mine.none"},
    "delete exchange": {"name": "mine.none"},
    "purge queue": {"name": "mine.none"},
    "peek": {"queue": "mine.none"},
    "get": {"queue": "mine.none"},
    "publish": {"exchange": "mine.none"},
    "move messages": {"from": "mine.none", "to": "mine.none"},
    "copy messages": {"from": "mine.none", "to": "mine.none"},
    "requeue messages": {"from": "mine.none"},
    "delete messages": {"from": "mine.none"},
    "show job": {"id": "none"},
    "cancel job": {"id": "none"},
    "release lease": {"queue": "mine.none", "group": "g"},
    "set group": {"stream": "mine.none", "group": "g"},
    "delete group": {"stream": "mine.none", "group": "g"},
    "drain": {"grace_s": -1},
    "reload": {},
    "back up": {"directory": "relative"},
    "move vhost": {"vhost": "missing", "broker": "none"},
    "accept loss": {"vhost": "missing"},
    "set alarm": {"vhost": "missing"},
    "clear alarm": {},
    "import definitions": {"vhost": "missing"},
    "trace": {},
}


def outcome(client: ManagementClient, operation: str, **fields: object) -> str:
    """Return "refused" or "passed"."""
    if operation == "events":  # They go on until the end is sent.
        client.send(operation)
        client.end.sendall(b'{"end": true}\n')
        while "done" not in client.line():
            pass
        return "passed"
    if operation == "import definitions":  # Refused, it ends the connection.
        client = ManagementClient(client.path, client.ticket)
        code = refusal(client, operation, **fields)
        client.close()
        return "refused" if code == "refused" else "passed"
    return "refused" if refusal(client, operation, **fields) == "refused" else "passed"


def fields_for(operation: str, vhost: str) -> dict[str, object]:
    """Return a harmless request of an operation."""
    fields = dict(REQUESTS.get(operation, {}))
    if "vhost" not in fields:
        fields["vhost"] = vhost
    return fields


@pytest.mark.parametrize(("operation", "tag"), cells())
def test_a_cell_of_the_table(matrix: dict[str, Any], operation: str, tag: str) -> None:
    """Each operation x tag x permission (all, on the name, another name, none in the host)."""
    if operation in ("logout", "login"):
        return check_logins(matrix, operation, tag)
    rule = OPERATIONS[operation]
    if not tag:  # Such a user cannot log in; the check itself refuses, too.
        operator = matrix["operator"]
        operator.ask("put user", name="untagged", password=PASSWORD)
        with pytest.raises(OperationRefused):
            operator.login("untagged", PASSWORD)
        return None
    client = matrix["users"][tag]
    allowed = tag in SUFFICE[rule.tags]
    expected = "passed" if allowed else "refused"
    assert outcome(client, operation, **fields_for(operation, "/")) == expected
    if rule.permissions:
        assert outcome(client, operation, **fields_for(operation, "mine")) == expected
        for need in rule.permissions:
            fields = {**fields_for(operation, "mine"), need.field: "his.own"}
            assert outcome(client, operation, **fields) == "refused", need
            fields = {**fields_for(operation, "other")}
            answer = refusal(client, operation, **fields)
            sees_all = tag in ("monitoring", "administrator", "viewer")
            assert answer == ("refused" if sees_all or not allowed else "not-found")
    if rule.own_vhost and allowed:
        answer = refusal(client, operation, **fields_for(operation, "other"))
        assert (answer == "not-found") == (tag != "administrator")
    return None


def check_logins(matrix: dict[str, Any], operation: str, tag: str) -> None:
    """Log a user in and out again."""
    if not tag:
        return
    client = matrix["operator"].login(tag, PASSWORD)
    client.ask("logout")
    assert refusal(client, "whoami") == "refused"
    client.close()


def test_lines_behind_a_refused_request_are_no_requests(operator: ManagementClient) -> None:
    ada = add_user(operator, "ada", "management", {"/": ".*"})
    inner = {"do": "put user", "name": "eve", "password": PASSWORD, "tags": "administrator"}
    lines = json.dumps(inner).encode() + b"\n" + b'{"end": true}\n'
    # At once: the broker closes the socket when it refuses.
    ada.end.sendall(ada.request("import definitions") + lines)
    with pytest.raises(OperationRefused, match="none of the tags administrator"):
        ada.line()
    with contextlib.suppress(ConnectionResetError):
        assert ada.answers.readline() == b""
    assert {row["name"] for row in operator.items("list users")} == {"guest", "ada"}


def test_the_system_user_needs_no_rule(operator: ManagementClient) -> None:
    operator.ask("put vhost", name="closed")  # Nobody has permissions there.
    operator.ask("declare queue", vhost="closed", name="q")
    operator.ask("bind", vhost="closed", source="amq.topic", destination="q", routing_key="#")
    assert operator.ask("delete queue", vhost="closed", name="q") == {"count": 0}


def test_what_a_queue_leads_to_is_checked_as_for_amqp(operator: ManagementClient) -> None:
    ada = add_user(operator, "ada", "management", {"/": "^a"})
    arguments = {"x-dead-letter-exchange": "secret"}
    with pytest.raises(OperationRefused) as refused:
        ada.ask("declare queue", name="a", arguments=arguments)
    expected = "write access to exchange 'secret' in vhost '/' refused for user 'ada'"
    assert (refused.value.code, refused.value.text) == ("refused", expected)
    with pytest.raises(OperationRefused, match="configure access to exchange 'b' in vhost '/'"):
        ada.ask("declare exchange", name="b")
    ada.ask("declare queue", name="a")
    operator.ask("put permission", user="ada", configure="^a", write="^a$", read="^a$")
    with pytest.raises(OperationRefused, match=r"read access to exchange 'amq\.topic'"):
        ada.ask("bind", source="amq.topic", destination="a")


# --- What is seen ---------------------------------------------------------------------------------


def test_one_sees_ones_own_virtual_hosts_and_with_a_tag_all(operator: ManagementClient) -> None:
    operator.ask("put vhost", name="shop")
    for vhost in ("/", "shop"):
        operator.ask("declare queue", vhost=vhost, name="q")
        operator.ask("bind", vhost=vhost, source="amq.topic", destination="q")
        operator.ask("put policy", vhost=vhost, name="p", pattern="q", definition={"max-length": 1})
        operator.ask("put limit", vhost=vhost, name="max-queues", value=5)
    kinds = ("queues", "bindings", "policies", "limits")
    for tag in TAGS[1:]:
        client = add_user(operator, tag, tag, {"shop": ".*"})
        seen = {"shop"} if tag in ("management", "policymaker") else {"/", "shop"}
        for kind in kinds:
            assert {row["vhost"] for row in client.items(f"list {kind}")} == seen, kind
        assert {row["name"] for row in client.items("list vhosts")} == seen
        code = "" if "/" in seen else "not-found"
        assert refusal(client, "show queue", vhost="/", name="q") == code
        assert refusal(client, "list queues", vhost="/") == code
        permissions = client.items("list permissions")
        assert {row["user"] for row in permissions} >= {tag}
        assert (len(permissions) == 1) == (tag != "administrator")
        client.close()


def test_one_sees_and_closes_ones_own_connections(
    operator: ManagementClient, broker: LocalBroker
) -> None:
    for name, tags in (("ada", "management"), ("eve", "management"), ("mon", "monitoring")):
        add_user(operator, name, tags, {"/": ".*"}).close()
    ada, eve = operator.login("ada", PASSWORD), operator.login("eve", PASSWORD)
    monitor = operator.login("mon", PASSWORD)
    with connect(broker.url_of(user="ada", password=PASSWORD)) as connection:
        connection.channel()
        (row,) = ada.items("list connections")
        assert row["user"] == "ada"
        assert len(ada.items("list channels")) == 1
        assert eve.items("list connections") == eve.items("list channels") == []
        assert refusal(eve, "show connection", id=row["id"]) == "not-found"
        assert refusal(eve, "close connection", id=row["id"]) == "not-found"
        assert [one["id"] for one in monitor.items("list connections")] == [row["id"]]
        assert refusal(monitor, "close connection", id=row["id"]) == "refused"
        assert ada.ask("close connection", id=row["id"], reason="enough") == {"closed": 1}
        until(lambda: not operator.items("list connections"), "the connection is gone")
    for client in (ada, eve, monitor):
        client.close()


@pytest.mark.parametrize("version", ["0-9-1", "0-10"])
def test_only_monitors_see_consumers_of_other_users(
    operator: ManagementClient, broker: LocalBroker, version: str
) -> None:
    for name, tags in (("ada", "management"), ("eve", "management"), ("mon", "monitoring")):
        add_user(operator, name, tags, {"/": ".*"}).close()
    operator.ask("declare queue", name="orders")
    clients = {name: operator.login(name, PASSWORD) for name in ("ada", "eve", "mon")}
    url = broker.url_of(user="ada", password=PASSWORD)
    with connect(f"{url}?version={version}") as connection, contextlib.ExitStack() as consumers:
        if version == "0-10":
            connection.session("work").subscribe("orders", destination="reader")
        else:
            consumers.enter_context(connection.channel().consume("orders", tag="reader"))
        seen = {
            name: [row["tag"] for row in client.items("list consumers")]
            for name, client in clients.items()
        }
        assert seen == {"ada": ["reader"], "eve": [], "mon": ["reader"]}
    for client in clients.values():
        client.close()


# --- The audit log --------------------------------------------------------------------------------


def test_the_audit_log_names_user_address_agent_operation_and_outcome(data: Path) -> None:
    log = data.parent / "audit.log"
    with LocalBroker(data, audit_log=str(log)):
        operator = ManagementClient(data / "management.sock")
        ada = add_user(operator, "ada", "management", {"/": "^a"})
        ada.ask("declare queue", name="a")
        ada.items("peek", queue="a")
        ada.items("list queues")
        refusal(ada, "declare queue", name="b")
        operator.ask("put user", name="bob", password="hidden-word", tags="")
        with pytest.raises(OperationRefused):
            operator.login("ada", "mistyped-word")
        ticket = str(ada.ticket)
        ada.close()
        operator.close()
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    commands = [line for line in lines if line["what"] == "command" and line.get("via")]
    assert [(line["command"], line["allowed"]) for line in commands] == [
        ("declare queue", True),
        ("peek", True),
        ("declare queue", False),
    ]
    assert {(line["who"], line["from"], line["agent"]) for line in commands} == {
        ("ada", PEER, "pytest")
    }
    (created,) = [line for line in lines if line["what"] == "queue.created"]
    assert (created["who"], created["from"]) == ("ada", PEER)
    logins = [line["allowed"] for line in lines if line["what"] == "login"]
    assert logins == [True, False]
    for secret in (ticket, "hidden-word", "mistyped-word", PASSWORD):
        assert secret not in text


READS = (
    ("route", {"exchange": "", "routing_key": "q"}),
    ("list users", {}),
    ("list queues", {}),
    ("show audit log", {}),
)
SHOWN_HASHES = (("list users", {"hashes": True}), ("show user", {"name": "ada"}))
SHOWN = (*SHOWN_HASHES, ("show log", {"of": "audit"}))


def test_reads_by_a_ticket_are_audited_only_if_they_show_payloads_hashes_or_the_log(
    data: Path,
) -> None:
    log = data.parent / "audit.log"
    with LocalBroker(data, audit_log=str(log)):
        operator = ManagementClient(data / "management.sock")
        ada = add_user(operator, "ada", "administrator")
        for name, fields in (*READS, *SHOWN):
            ada.ask(name, **fields)
        refusal(ada, "cluster status")
        ada.close()
        operator.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    commands = [(line["command"], line["allowed"]) for line in lines if line.get("via")]
    assert commands == [*((name, True) for name, _ in SHOWN), ("cluster status", False)]


def test_reads_are_answered_while_changes_wait_for_the_disk(
    operator: ManagementClient, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_durable() -> bool:
        return False

    monkeypatch.setattr(broker._broker.unsynced, "wait", is_durable)
    for name, row in OPERATIONS.items():
        if row.reads and name not in ("events", "login", "logout"):
            operator.send(name, exchange="", routing_key="q")
            answer = b""
            while b'"done"' not in answer and b'"error"' not in answer:
                answer = operator.answers.readline()
            assert b"cannot be written to disk" not in answer, name
    assert refusal(operator, "put name", name="one") == "precondition"
