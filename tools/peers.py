# SPDX-License-Identifier: Apache-2.0
"""Install the clients and servers of other projects that tests use and `headrace[dev]` lacks.

    python tools/peers.py

Each peer is a folder in build/interop: a link to a folder in $XDG_CACHE_HOME/headrace/peers, whose
name has the peer and a digest of its contents, so that all checkouts share it. Packages of Debian
and Ubuntu are unpacked there, not installed: no service starts, and no other program sees them.
Package names have no versions; the versions are resolved by dependency. build/interop/absent.json
has the peers that a distribution lacks, each with the reason, and tests that need them are skipped
for that reason only.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "interop"
ABSENT = FOLDER / "absent.json"  # Peers that this distribution lacks, each with the reason.
CURRENT = FOLDER / "current"  # The fingerprint of the last run, which shows that nothing changed.
LISTS = Path("/var/lib/apt/lists")
SILENT_S = 15.0
UNUSED_DAYS = 90  # Folders of the cache are removed after this many days without use.


class PeerUnavailable(Exception):
    """This distribution lacks the peer; the text has the reason."""


class PeerFailed(Exception):
    """A peer could not be installed; the text has the remedy."""


class Peer(Protocol):
    """A client or library that can be installed into a folder."""

    @property
    def name(self) -> str: ...  # Of its folder in build/interop.

    @property
    def what(self) -> str: ...  # For a reader.

    def contents(self) -> list[str]: ...  # What its folder is made of, with versions.

    def make(self, folder: Path, contents: list[str]) -> None: ...  # Into an empty folder.


def run(*words: str, cwd: Path | None = None, **environment: str) -> str:
    """Run a command and return its output. Raises PeerFailed with the command's error text."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last_lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-8:]
        raise PeerFailed(
            f"{' '.join(words[:4])} …: exit {done.returncode}\n  " + "\n  ".join(last_lines)
        )
    return done.stdout


# --- Packages of the distribution -----------------------------------------------------------------

# Every system has these, or `tools/system.sh` installs them; no second copy is unpacked.
OF_THE_SYSTEM = re.compile(
    r"(python3(\.\d+)?(-minimal|-stdlib)?|libpython3\S*|perl|perl-base|perl-modules\S*|libperl5\S*"
    r"|\S*-jre(-headless)?(:\S+)?|java-common|ca-certificates\S*|openssl|adduser|debconf\S*|ucf"
    r"|systemd\S*|udev|dbus\S*|init-system-helpers|postgresql\S*|ssl-cert|fonts-\S+|libc6)"
)
PRIORITIES = {"required", "important", "standard"}


def distribution() -> str:
    """Return the name and version of the distribution, such as `Debian 13`."""
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    names = (release.get(key, "").strip('"') for key in ("NAME", "VERSION_ID"))
    return " ".join(names).replace(" GNU/Linux", "").strip()


def _lists_are_read() -> bool:
    return any(LISTS.glob("*_Packages*")) or any(LISTS.glob("*.lz4"))


def _update() -> None:
    """Update the lists of packages, if this user may."""
    if os.geteuid():
        raise PeerFailed("the lists of packages are missing or old. As root: apt-get update")
    print("== reading the lists of packages", flush=True)
    run("apt-get", "-q", "-o", "Acquire::Retries=3", "update")


def resolve_packages(
    packages: tuple[str, ...], *, alone: bool, parts: tuple[str, ...] = ()
) -> list[str]:
    """Return `name=version` of the packages and, unless `alone`, of all their dependencies.

    With `alone` only the dependencies among `parts` are returned. They are resolved as if no
    package was installed, so the result is the same on all machines of a distribution. Raises
    PeerUnavailable.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PeerUnavailable(f"{distribution()} has no apt-get and dpkg-deb, which unpack it")
    with tempfile.NamedTemporaryFile() as nothing:
        words = ["apt-get", "-s", "-q", "-o", f"Dir::State::status={nothing.name}"]
        words += ["-o", "APT::Install-Recommends=false", "install", *packages]
        try:
            plan = run(*words)
        except PeerFailed as error:
            missing = re.findall(
                r"Unable to locate package (\S+)|Package '?(\S+?)'? has no", str(error)
            )
            names = [unknown or empty for unknown, empty in missing]
            if not names and "unmet dependencies" not in str(error):
                raise
            why = f"no package {' and '.join(names)}" if names else "only a part of its packages"
            raise PeerUnavailable(f"{distribution()} has {why}") from None
    versions = dict(re.findall(r"^Inst (\S+) \((\S+) ", plan, re.MULTILINE))
    wanted = (
        [*packages, *(name for name in parts if name in versions)] if alone else sorted(versions)
    )
    if not alone:
        shown = run("apt-cache", "show", "--no-all-versions", *wanted)
        of_the_system = {
            name
            for name, priority in re.findall(
                r"^Package: (\S+)$(?:\n.+)*?\nPriority: (\S+)$", shown, re.MULTILINE
            )
            if priority in PRIORITIES
        }
        wanted = [
            name
            for name in wanted
            if name in packages or (name not in of_the_system and not OF_THE_SYSTEM.fullmatch(name))
        ]
    return [f"{name}={versions[name]}" for name in wanted]


@dataclass(frozen=True)
class Packages:
    """Packages of the distribution, unpacked."""

    name: str
    what: str
    packages: tuple[str, ...]
    alone: bool = False  # Without what they depend on,
    parts: tuple[str, ...] = ()  # but with these, which some distributions have apart.
    left_out: tuple[str, ...] = ()  # Patterns of files that are not needed.
    finish: Callable[[Path], None] | None = field(default=None, repr=False)

    def contents(self) -> list[str]:
        return resolve_packages(self.packages, alone=self.alone, parts=self.parts)

    def make(self, folder: Path, contents: list[str]) -> None:
        with tempfile.TemporaryDirectory(prefix="headrace-peer-") as place:
            try:
                run("apt-get", "-q", "download", *contents, cwd=Path(place))
            except PeerFailed:
                # A list may be older than the archive. What is newer now has the old name here, for
                # its folder is named by what it was to be made of: the next run makes it anew.
                if not os.geteuid():
                    _update()
                names = [package.partition("=")[0] for package in contents]
                run("apt-get", "-q", "download", *names, cwd=Path(place))
            excluded = [f"--exclude={pattern}" for pattern in (*self.left_out, "./usr/share/doc")]
            for package in sorted(Path(place).glob("*.deb")):
                archive = package.with_suffix(".tar")
                with archive.open("wb") as file:
                    subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=file, check=True)
                run("tar", "-x", "-f", str(archive), "-C", str(folder), *excluded)
                archive.unlink()
        if self.finish:
            self.finish(folder)


def _jars(folder: Path) -> None:
    """Keep three jars of RabbitMQ's Java client and of Eclipse's compiler."""
    for jar in ("amqp-client", "slf4j-api", "ecj"):
        shutil.copyfile(folder / f"usr/share/java/{jar}.jar", folder / f"{jar}.jar")
    shutil.rmtree(folder / "usr")


def _from_include_path(folder: Path) -> None:
    """Have PHP's packages find one another where they are unpacked, by the include path."""
    for loader in (folder / "usr/share/php").glob("**/autoload.php"):
        loader.write_text(loader.read_text().replace("'/usr/share/php/", "'"))


def _compiled_go(folder: Path) -> None:
    """Compile the tests of amqp091-go, and with them all that our program needs.

    They wait as long for an event as a quick machine needs; ours may do much else.
    """
    usr = folder / "usr"
    client = usr / "share/gocode/src/github.com/rabbitmq/amqp091-go"
    test = client / "integration_test.go"
    pattern = r"time\.After\([0-9]+ \* time\.Millisecond\)"
    test.write_text(re.sub(pattern, "time.After(100 * time.Second)", test.read_text()))
    (root,) = (path for path in (usr / "lib").glob("go-*") if path.is_dir())
    run(
        *(str(root / "bin" / "go"), "test", "-vet=off", "-tags=integration", "-c"),
        *("-o", str(usr / "bin" / "amqp091.test"), "."),
        cwd=client,
        GOROOT=str(root),
        GOPATH=str(usr / "share/gocode"),
        GOCACHE=str(usr / "cache"),
        GO111MODULE="off",
        GOFLAGS="",
        CGO_ENABLED="0",
    )


# --- Packages of PyPI and npm ---------------------------------------------------------------------


def _source(name: str, version: str) -> bytes:
    """Return the bytes of a source package, found by pip's own finder and settings.

    `pip download` would run its setup.py, which needs Python 2. Raises OSError and PeerFailed.
    """
    from pip._internal.commands import create_command
    from pip._vendor.packaging.specifiers import SpecifierSet

    command = create_command("download")
    options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", name])
    with command.main_context():
        session = command.get_default_session(options)  # type: ignore[attr-defined]
        finder = command._build_package_finder(options, session)  # type: ignore[attr-defined]
        best = finder.find_best_candidate(name, SpecifierSet(f"=={version}")).best_candidate
        if best is None:
            raise PeerFailed(f"the package index has no {name} {version}")
        answer = session.get(best.link.url_without_fragment, timeout=60)
        answer.raise_for_status()
        return bytes(answer.content)


@dataclass(frozen=True)
class SourcePackage:
    """A source package of PyPI that no current Python can install, unpacked unchanged."""

    name: str
    what: str
    version: str
    sha256: str

    def contents(self) -> list[str]:
        return [f"{self.name}={self.version}", self.sha256]

    def make(self, folder: Path, contents: list[str]) -> None:
        for last in (False, True):
            try:
                octets = _source(self.name, self.version)
                break
            except OSError as error:  # Of `requests`, too.
                if last:
                    raise PeerFailed(f"{self.name} {self.version}: {error}") from None
        if hashlib.sha256(octets).hexdigest() != self.sha256:
            raise PeerFailed(
                f"{self.name} {self.version} is not the file that it was: another digest"
            )
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            archive = Path(place) / "archive"
            archive.write_bytes(octets)
            with tarfile.open(archive) as tar:
                # Python 3.11.2, that of Debian 12, has no filters. The digest is a known one.
                tar.extraction_filter = getattr(tarfile, "data_filter", None)
                tar.extractall(place)
            archive.unlink()
            (top,) = Path(place).iterdir()
            for path in top.iterdir():
                path.rename(folder / path.name)


@dataclass(frozen=True)
class PipFolder:
    """Packages of PyPI in a separate folder, used together with the packages of `headrace[dev]`."""

    name: str
    what: str
    packages: tuple[str, ...]
    alone: bool = False  # Without what they depend on.

    def contents(self) -> list[str]:
        return [*self.packages, sys.implementation.cache_tag or ""]

    def make(self, folder: Path, contents: list[str]) -> None:
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        words += ["--no-deps"] if self.alone else []
        run(*words, *self.packages)


@dataclass(frozen=True)
class PipEnvironment:
    """A package of PyPI in a separate environment, because it needs other versions than ours."""

    name: str
    what: str
    package: str

    def contents(self) -> list[str]:
        return [self.package, sys.version, str(Path(sys.executable).resolve())]

    def make(self, folder: Path, contents: list[str]) -> None:
        run(sys.executable, "-m", "venv", str(folder))
        run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", self.package)
        # Its scripts begin with the path of the interpreter: it stays where it is made.


@dataclass(frozen=True)
class NodeModules:
    """Packages of npm."""

    name: str
    what: str
    packages: tuple[str, ...]

    def contents(self) -> list[str]:
        return list(self.packages)

    def make(self, folder: Path, contents: list[str]) -> None:
        (folder / "package.json").write_text('{"private": true}\n')
        words = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund"]
        run(*words, "--no-progress", "--ignore-scripts", "--silent", *self.packages)


# --- The list -------------------------------------------------------------------------------------

COLLECTIONS = "./usr/lib/python3/dist-packages/ansible_collections"
PEERS: tuple[Peer, ...] = (
    NodeModules(
        "npm",
        "clients of npm, and axe",
        (
            "axe-core@4.14.1",
            "amqplib@2.3.1",
            "rabbitmq-client@5.0.8",
            "rabbitmq-stats@1.2.4",
            "amqp-stats@0.0.14",
            "http-rabbitmq-manager@0.0.4",
        ),
    ),
    Packages("py-amqplib", "py-amqplib for 0-8", ("python3-amqplib",), alone=True),
    Packages("net-amqp", "Net::AMQP for 0-8", ("libnet-amqp-perl",)),
    Packages("pgbouncer", "PgBouncer, which pools transactions", ("pgbouncer",)),
    Packages("etcd", "etcd", ("etcd-server",), alone=True),
    Packages("patroni", "Patroni", ("patroni", "python3-etcd", "python3-psycopg2")),
    # Nothing else of ours speaks 0-10; they are as they were published, and no Python 3 runs them.
    SourcePackage(
        "qpid-python",
        "Qpid's client for 0-10",
        "1.36.0-1",
        "1a341981723a7980163e6d33530f29133433742f6f9b5b12b46d5d239548afee",
    ),
    SourcePackage(
        "qpid-tools",
        "Qpid's tools",
        "1.36.0-1",
        "14af55c6e47bcc24b2199110d57242e014f05708fba1d8d224254c917131505b",
    ),
    # Its archive of modules needs the others, which it only recommends.
    Packages("jython", "Jython", ("jython", "libbcpkix-java", "libbcprov-java", "libnetty-java")),
    Packages(
        "java",
        "RabbitMQ's Java client",
        ("librabbitmq-client-java", "libslf4j-java", "libecj-java"),
        alone=True,
        finish=_jars,
    ),
    Packages(
        "php",
        "PHP and its clients",
        ("php-cli", "php-mbstring", "php-amqp", "php-amqplib", "php-phpseclib3"),
        finish=_from_include_path,
    ),
    Packages(
        "prometheus", "Prometheus and promtool", ("prometheus",), alone=True, parts=("promtool",)
    ),
    Packages("ruby", "Ruby and bunny", ("ruby", "ruby-bunny")),
    Packages("rabbitmq-c", "rabbitmq-c", ("librabbitmq4", "librabbitmq-dev"), alone=True),
    Packages("perl", "AnyEvent::RabbitMQ", ("libanyevent-rabbitmq-perl",)),
    Packages("mono", "Mono and RabbitMQ's .NET client", ("mono-mcs", "libmono-rabbitmq4.0-cil")),
    Packages(
        "go",
        "Go and amqp091-go",
        (
            "golang-go",
            "golang-src",
            "golang-github-rabbitmq-amqp091-go-dev",
            "golang-uber-goleak-dev",
        ),
        # Go's own tests, and its commands as packages.
        left_out=(
            "./usr/share/go-*/test",
            "./usr/share/go-*/api",
            "*/testdata",
            "*/pkg/linux_*/cmd",
        ),
        finish=_compiled_go,
    ),
    # --- Clients of the HTTP API
    Packages(
        "rabbitmqadmin",
        "rabbitmqadmin",
        ("rabbitmq-server",),
        alone=True,
        left_out=(
            "./usr/lib/erlang",
            "./usr/share",
            "./usr/sbin",
            "./etc",
            "./var",
            "./lib",
            "*.beam",
            "*.ez",
        ),
    ),
    Packages("nagios", "Nagios' plugins for RabbitMQ", ("nagios-plugins-rabbitmq",)),
    # Of Ansible's hundreds of collections only that for RabbitMQ, and the one that prints JSON.
    Packages(
        "ansible",
        "Ansible",
        ("ansible", "ansible-core", "python3-resolvelib"),
        alone=True,
        left_out=(
            *(f"{COLLECTIONS}/[!ac]*", f"{COLLECTIONS}/a[!n]*", f"{COLLECTIONS}/ansible/[!p]*"),
            *(f"{COLLECTIONS}/c[!o]*", f"{COLLECTIONS}/community/[!r]*"),
            *(f"{COLLECTIONS}/community/ro*", f"{COLLECTIONS}/containers"),
        ),
    ),
    PipFolder("rabbitmq-admin", "rabbitmq-admin", ("rabbitmq-admin==0.2",), alone=True),
    # The newest for which there is the extension that reads Iceberg.
    PipFolder(
        "duckdb",
        "DuckDB with its extensions for Iceberg",
        ("duckdb==1.5.5", "duckdb-extension-iceberg==1.5.5", "duckdb-extension-avro==1.5.5"),
    ),
    PipEnvironment(
        "mcp", "the MCP server amq-mcp-server-rabbitmq", "amq-mcp-server-rabbitmq==4.0.0"
    ),
)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Print which peer is being installed, and the elapsed time every SILENT_S seconds."""
    print(f"== bringing {what}", flush=True)
    start_s, ended = time.monotonic(), threading.Event()

    def print_time() -> None:
        while not ended.wait(SILENT_S):
            print(f"   … {time.monotonic() - start_s:.0f} s", flush=True)

    printer = threading.Thread(target=print_time)
    printer.start()
    try:
        yield
    finally:
        ended.set()
        printer.join()


# --- The cache ------------------------------------------------------------------------------------


def cache() -> Path:
    """Return the folder that all checkouts share; a folder in build if HOME is not writable."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "headrace" / "peers"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        folder = FOLDER / "cache"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def peer_folder(peer: Peer, contents: list[str], folder: Path) -> Path:
    """Return the folder of a peer; its name has a digest of the peer's contents."""
    finish = getattr(peer, "finish", None)
    steps = inspect.getsource(finish) if finish else ""
    made_of = "\n".join([*contents, repr(peer), steps, distribution()])
    return folder / f"{peer.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"


def bring(peer: Peer, folder: Path) -> None:
    """Install a missing peer, and link it in build/interop.

    Raises PeerUnavailable and PeerFailed.
    """
    contents = peer.contents()
    place = peer_folder(peer, contents, folder)
    done = place.with_name(place.name + ".done")  # Of a folder without it, a part may be missing.
    if not done.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        try:
            with progress(peer.what):
                peer.make(place, contents)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    done.touch()  # Used now.
    link = FOLDER / peer.name
    if link.is_symlink() or link.is_file():
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)
    link.symlink_to(place)


def forget_unused(folder: Path) -> None:
    """Remove the folders that no run has used for UNUSED_DAYS days."""
    for done in folder.glob("*.done"):
        if time.time() - done.stat().st_mtime > UNUSED_DAYS * 86_400:
            done.unlink()
            shutil.rmtree(done.with_suffix(""), ignore_errors=True)


def fingerprint(folder: Path) -> str:
    """Return a text that changes if peers may have to be installed again."""
    watched = [Path(__file__), LISTS, Path("/etc/os-release")]
    stamps = [str(path.stat().st_mtime_ns) for path in watched if path.exists()]
    return "\n".join([*stamps, sys.version, sys.executable, str(folder)])


def absent() -> dict[str, str]:
    """Return the peers that this distribution lacks, each with the reason."""
    reasons: dict[str, str] = json.loads(ABSENT.read_text()) if ABSENT.exists() else {}
    return reasons


def main() -> int:
    """Install all peers; return the exit status."""
    folder = cache()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # A second run waits, and finds all done.
        current = fingerprint(folder)
        missing = absent()
        whole = all((FOLDER / peer.name).exists() or peer.name in missing for peer in PEERS)
        if whole and CURRENT.exists() and CURRENT.read_text() == current:
            return 0
        if shutil.which("apt-get") and not _lists_are_read():
            _update()
        missing = {}
        for peer in PEERS:
            try:
                bring(peer, folder)
            except PeerUnavailable as lacking:
                missing[peer.name] = f"{peer.what}: {lacking}"
                (FOLDER / peer.name).unlink(missing_ok=True)
        ABSENT.write_text(json.dumps(missing, indent=2) + "\n")
        CURRENT.write_text(fingerprint(folder))
        forget_unused(folder)
    for reason in missing.values():
        print(f"not tried here: {reason}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PeerFailed as error:
        sys.exit(f"headrace: {error}")
    except OSError as error:
        sys.exit(f"headrace: the clients that tests drive could not be brought: {error}")
