# SPDX-License-Identifier: Apache-2.0
"""What stands beside the broker is fenced: without its folders and its registration all else works.

The broker of each test runs from a tree of links to `src`, without the folders of one fence.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.protocol import codec_0_10
from headrace.protocol.codec_0_x import (
    AccessRequest,
    BasicDeliver,
    ChannelResume,
    ExchangeDeclare,
    FileProperties,
    FileQos,
    FileStage,
    MessageQos,
    MethodBase,
    PropertiesBase,
    StreamQos,
    TunnelProperties,
    TunnelRequest,
)
from headrace.protocol.codec_0_x import TestInteger as IntegerTest
from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version
from headrace.testing import ChildBroker
from headrace.testing.raw_client import RawClient
from headrace.testing.raw_session import SessionClient

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
NOT_FOUND, NOT_IMPLEMENTED = 404, 540
CIMPORT = re.compile(r"^from ([\w.]+) cimport|^cimport ([\w.]+)", re.MULTILINE)
HELP_S = 60


@dataclass(frozen=True)
class Fence:
    """A feature beside the broker, and all that names it."""

    folders: tuple[str, ...]  # Below src.
    tables: tuple[str, ...] = ()  # Modules that register it.
    commands: tuple[str, ...] = ()  # Modules of commands, which import it on use.
    tests: tuple[str, ...] = ()  # Its tests and tools, from the root.


PLUG_INS_0_X = "headrace/gateway/v0_x/plug_ins.py"
PLUG_INS_0_10 = "headrace/gateway/v0_10/plug_ins.py"
FENCES = {
    "bench": Fence(
        ("headrace/bench",),
        tests=(
            "tests/bench/test_bench_meter.py",
            "tests/broker/server/test_bench.py",
            "tools/instructions.py",
            "tools/longrun.py",
        ),
    ),
    "conformance": Fence(
        ("headrace/conformance",),
        commands=("headrace/cli/check/conformance.py",),
        tests=("tests/broker/gateway/test_conformance.py", "tools/conformance.py"),
    ),
    "qmf": Fence(
        ("headrace/server/qmf",),
        tables=("headrace/server/plug_ins.py",),
        tests=("tests/broker/server/test_qmf.py",),
    ),
    "content classes": Fence(
        (
            "headrace/gateway/content_classes",
            "headrace/gateway/v0_x/content_classes",
            "headrace/gateway/v0_10/content_classes",
        ),
        tables=(PLUG_INS_0_X, PLUG_INS_0_10),
        tests=("tests/gateway/content_classes/test_packets.py",),
    ),
    "early": Fence(
        ("headrace/gateway/v0_x/early",),
        tables=(PLUG_INS_0_X,),
        tests=("tests/gateway/v0_x/test_message_0_9.py",),
    ),
}
fences = pytest.mark.parametrize("fence", FENCES.values(), ids=FENCES)


# --- What names a folder --------------------------------------------------------------------------


def modules_of(fence: Fence) -> tuple[str, ...]:
    return tuple(folder.replace("/", ".") for folder in fence.folders)


def is_within(module: str, fence: Fence) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in modules_of(fence))


def imported(node: ast.AST) -> list[str]:
    """Return the modules that a statement may import, by their full names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


@functools.cache
def imports_of(path: Path, *, on_use: bool) -> tuple[str, ...]:
    """Return what a module imports; with `on_use` also what its functions do."""
    modules: list[str] = []
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        modules += imported(node)
        if on_use or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting.extend(ast.iter_child_nodes(node))
    types = path.with_suffix(".pxd")
    if types.exists():
        modules += [match[1] or match[2] for match in CIMPORT.finditer(types.read_text())]
    return tuple(modules)


def namers(fence: Fence, folder: Path, root: Path, *, on_use: bool) -> set[str]:
    """Return the files in a folder that import something of a fence, but those within it."""
    return {
        name
        for path in folder.rglob("*.py")
        if not (name := str(path.relative_to(root))).startswith(
            tuple(f"{one}/" for one in fence.folders)
        )
        and any(is_within(module, fence) for module in imports_of(path, on_use=on_use))
    }


@fences
def test_only_its_registration_names_a_folder(fence: Fence) -> None:
    assert namers(fence, SOURCE, SOURCE, on_use=True) == {*fence.tables, *fence.commands}


@fences
def test_only_its_own_tests_import_a_folder(fence: Fence) -> None:
    """Another test may do so in the function that tests what is in the folder."""
    found = {
        name
        for folder in ("tests", "tools")
        for name in namers(fence, ROOT / folder, ROOT, on_use=False)
    }
    assert found == set(fence.tests)


# --- A tree without a folder ----------------------------------------------------------------------


def unregistered(text: str, fence: Fence) -> str:
    """Return a module without the imports from a fence, and without what its tables have of it."""
    tree = ast.parse(text)
    gone: set[str] = set()
    for node in [node for node in tree.body if isinstance(node, ast.ImportFrom)]:
        within = [alias for alias in node.names if is_within(f"{node.module}.{alias.name}", fence)]
        gone |= {alias.asname or alias.name for alias in within}
        node.names = [alias for alias in node.names if alias not in within]
        if not node.names:
            tree.body.remove(node)
    assert gone, "nothing is registered here"
    for table in [node for node in ast.walk(tree) if isinstance(node, ast.Tuple)]:
        table.elts = [row for row in table.elts if not gone & names_in(row)]
    assert not gone & names_in(tree), "it is used by more than a table"
    return ast.unparse(tree)


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def link_without(fence: Fence, target: Path) -> None:
    """Make a tree of links to the source, without a fence's folders and its registration."""
    touched = {SOURCE / name for name in (*fence.folders, *fence.tables)}
    above = {parent for path in touched for parent in path.parents}

    def link(folder: Path) -> None:
        (target / folder.relative_to(SOURCE)).mkdir()
        for path in folder.iterdir():
            if path in above:
                link(path)
            elif path not in touched and path.name != "__pycache__":
                (target / path.relative_to(SOURCE)).symlink_to(path)

    link(SOURCE)
    for table in fence.tables:
        (target / table).write_text(unregistered((SOURCE / table).read_text(), fence))


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The tree without the fence of that name."""
    target = tmp_path / "src"
    link_without(FENCES[request.param], target)
    return target


@pytest.fixture
def broker(source: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildBroker]:
    """A broker that runs from this tree, and must end well.

    Its settings ask for QMF, without which no broker has the exchanges of QMF.
    """
    monkeypatch.syspath_prepend(str(source))
    with ChildBroker(None, "--qmf") as running:
        yield running
        assert running.stop() == 0


def without(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("source", names, indirect=True)


def consume_one(broker: ChildBroker, version: Version) -> bytes:
    """Publish a message and consume it; return its body."""
    if version is V0_10:
        with SessionClient(broker.host, broker.port) as client:
            client.open()
            session = client.attach()
            session.call(codec_0_10.QueueDeclare(queue=version.label))
            session.publish(b"body", version.label)
            session.subscribe(version.label)
            return session.take_deliveries(1)[0].body
    with RawClient(broker.host, broker.port, version) as client:
        client.open().with_queue(version.label)
        client.publish(version.label, b"body")
        client.consume(version.label)
        return client.content(BasicDeliver)[1]


@without(*FENCES)
def test_a_broker_serves_every_version_without_it(broker: ChildBroker) -> None:
    for version in (V0_8, V0_9, V0_9_1, V0_10):
        assert consume_one(broker, version) == b"body"


# --- What a client or a user hears of it ----------------------------------------------------------

CONTENT_CLASSES: list[tuple[MethodBase, PropertiesBase | None]] = [
    (FileQos(), None),
    (FileStage(), FileProperties()),
    (StreamQos(), None),
    (TunnelRequest(), TunnelProperties()),
    (IntegerTest(), None),
]


def code_for(
    broker: ChildBroker,
    version: Version,
    method: MethodBase,
    properties: PropertiesBase | None = None,
    channel: int = 1,
) -> int:
    """Return the reply code with which a method ends its connection."""
    with RawClient(broker.host, broker.port, version) as client:
        client.open()
        if properties is None:
            client.send(method, channel)
        else:
            client.send_content(method, properties, b"body", channel)
        return client.expect_connection_close().code


@without("content classes")
def test_a_method_of_a_missing_class_is_not_implemented(broker: ChildBroker) -> None:
    for version in (V0_8, V0_9):
        for method, properties in CONTENT_CLASSES:
            if version not in method.INDEX:  # The class test is of 0-8 alone.
                continue
            code = code_for(broker, version, method, properties)
            assert (method.NAME, code) == (method.NAME, NOT_IMPLEMENTED)


@without("content classes")
def test_a_command_of_a_missing_class_is_not_implemented(broker: ChildBroker) -> None:
    calls: list[tuple[codec_0_10.Command, bytes]] = [
        (codec_0_10.FileQos(), b""),
        (codec_0_10.FileStage(), b"body"),
        (codec_0_10.StreamQos(), b""),
    ]
    for command, body in calls:
        with SessionClient(broker.host, broker.port) as client:
            client.open()
            failure = client.attach().expect_exception(command, body=body)
            assert (command.NAME, failure.error_code) == (command.NAME, NOT_IMPLEMENTED)


@without("early")
def test_a_method_of_early_versions_is_not_implemented(broker: ChildBroker) -> None:
    asked = [(V0_8, AccessRequest(), 1), (V0_9, ChannelResume(), 2), (V0_9, MessageQos(), 1)]
    for version, method, channel in asked:
        code = code_for(broker, version, method, channel=channel)
        assert (method.NAME, code) == (method.NAME, NOT_IMPLEMENTED)


@without("qmf")
def test_the_exchanges_of_qmf_do_not_exist(broker: ChildBroker) -> None:
    for name in ("qmf.default.direct", "qmf.default.topic"):
        with RawClient(broker.host, broker.port) as client:
            client.open().send(ExchangeDeclare(exchange=name, passive=True))
            assert client.expect_channel_close().code == NOT_FOUND


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def headrace(source: Path) -> Run:
    """Run a command from the tree."""

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "headrace.cli", *words],
            env={**os.environ, "PYTHONPATH": str(source), **more},
            capture_output=True,
            text=True,
            timeout=HELP_S,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("source", "words", "room"),
    [
        ("bench", ["bench", "amqp://localhost"], "headrace.bench"),
        ("bench", ["bench-spark"], "headrace.bench"),
        ("conformance", ["conformance", "amqp://localhost"], "headrace.conformance"),
    ],
    indirect=["source"],
    ids=["bench", "bench-spark", "conformance"],
)
def test_a_missing_command_says_so(headrace: Run, words: list[str], room: str) -> None:
    ended = headrace(*words)
    assert ended.returncode == 2
    assert ended.stderr == f"Error: {room} is not part of this installation\n"


@without("bench", "conformance")
def test_help_and_completion_work_without_it(headrace: Run) -> None:
    assert headrace("--help").returncode == 0
    completed = headrace(
        _HEADRACE_COMPLETE="bash_complete", COMP_WORDS="headrace b", COMP_CWORD="1"
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "backup" in completed.stdout
