# SPDX-License-Identifier: Apache-2.0
"""Programs in other languages that run scenarios with their clients, and tell what became of each.

Such a program prints a JSON object a line: {"scenario": name, "failure": text or null}, or
{"ask": [word, …]}, and then waits for a line: "restart" has the broker that it is asked about
restarted, any other words are a `headrace` command on its data directory. Its environment says
which broker that is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pika
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from pika.exceptions import AMQPConnectionError

from headrace.cli import main
from support.brokers.broker_process import Served, until
from support.certificates_and_tokens import Certificates
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cryptography import x509

    from support.brokers.broker_process import Remote

HERE = Path(__file__).parents[2] / "interop"
ROOT = HERE.parent.parent
BROUGHT = ROOT / "build" / "interop"
PHP = BROUGHT / "php"
RUN_S = 500.0  # Of all scenarios of a program; some seconds are needed.


def bring(*paths: Path) -> None:
    """`make test` brings the clients; a bare pytest does so on first use.

    The test is skipped where the distribution does not have the client, and for no other reason.
    """
    if all(path.exists() for path in paths):
        return
    subprocess.run([sys.executable, str(ROOT / "tools" / "peers.py")], check=True)
    reasons = json.loads((BROUGHT / "absent.json").read_text())
    for path in paths:
        reason = reasons.get(path.relative_to(BROUGHT).parts[0])
        if reason:
            pytest.skip(f"not tried here: {reason}")
        assert path.exists(), f"{path} is not in what tools/peers.py brought"


def the_only(folder: Path, pattern: str) -> Path:
    """Return the path in a folder whose name has a version of the distribution's in it."""
    (path,) = folder.glob(pattern)
    return path


class Kept:
    """A broker of one program's own: with TLS, a place where publishers are held up, restarts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.authority = Certificates(home)
        cert, key, _ = self.authority.issue("localhost", "localhost")
        tls = ("--tls-port", "0", "--tls-cert", str(cert), "--tls-key", str(key))
        self.served = Served(home / "kept", *tls, "--tls-ca", str(self.authority.ca)).start()
        self.run("vhost", "add", "held")
        self.run("permission", "set", "guest", ".*", ".*", ".*", "--vhost", "held")
        self.certificate, self.key, signed = self.authority.issue("guest")
        self.bundle = self._bundle(signed)
        self.tls = self.served.ready["amqps"].rpartition(":")[2]
        until(self._lets_in, "the broker learns of the place")

    def _lets_in(self) -> bool:
        """Return True if guest may open the virtual host `held`."""
        where = self.served.url.replace("%2F", "held")
        try:
            pika.BlockingConnection(pika.URLParameters(where)).close()
        except AMQPConnectionError:
            return False
        return True

    def _bundle(self, certificate: x509.Certificate) -> Path:
        """Certificate and key in one file, as Java has them."""
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        locked = serialization.BestAvailableEncryption(b"secret")
        path = self.home / "guest.p12"
        bundled = pkcs12.serialize_key_and_certificates(b"guest", key, certificate, None, locked)  # type: ignore[arg-type]
        path.write_bytes(bundled)
        return path

    def run(self, *words: str) -> None:
        """Run `headrace` on the broker's data directory, in this process."""
        data = str(self.served.home / "data")
        done = CliRunner().invoke(main, [*words, "--data", data])
        assert done.exit_code == 0, done.output

    def answer(self, *words: str) -> None:
        """Do what a program asks for."""
        if words == ("restart",):
            self.served.restart()
        else:
            self.run(*words)

    def environment(self) -> dict[str, str]:
        """Arguments of a program: the broker, and how many seconds to wait for it."""
        told = {
            "HOST": self.served.host,
            "PORT": self.served.port,
            "URL": self.served.url,
            "TLS_PORT": self.tls,
            "CA": self.authority.ca,
            "CERTIFICATE": self.certificate,
            "KEY": self.key,
            "PATIENCE_S": int(PATIENCE_S),
        }
        return {f"BROKER_{name}": str(value) for name, value in told.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        status = self.served.stop()
        if kind is None:
            assert (status, "Traceback" in self.served.log()) == (0, False), self.served.log()


def names_in(source: Path, pattern: str) -> list[str]:
    """The scenarios that a program has, as its source names them."""
    found = re.findall(pattern, source.read_text(), re.MULTILINE)
    assert found, source
    return found


def scenarios_of(
    program: list[str], kept: Kept, said: Path, **environment: str
) -> dict[str, str | None]:
    """Run a program to its end; what went wrong in each scenario that it came to the end of."""
    found: dict[str, str | None] = {}
    status = run_to_end(
        program,
        said,
        RUN_S,
        lambda child: hear(child, kept, found),
        {**os.environ, **kept.environment(), **environment},
    )
    assert status in (0, -signal.SIGKILL), said.read_text()
    return found


def run_to_end(
    program: list[str],
    said: Path,
    patience_s: float,
    listen: Callable[[subprocess.Popen[str]], None],
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a program that is listened to until it has no more to say; return how it ended.

    What it writes to stderr is in ``said``. It is killed after ``patience_s`` seconds.
    """
    with said.open("w+") as errors:
        child = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
        patience = threading.Timer(patience_s, child.kill)
        patience.start()
        try:
            listen(child)
        finally:
            patience.cancel()
            child.kill()
            child.communicate()
    return child.returncode


def php_scenarios(*programs: str) -> list[str]:
    """The names of the scenarios of programs of PHP."""
    source = "".join([(HERE / "php" / program).read_text() for program in programs])
    found = re.findall(r"^    public function (\w+)\(\): void", source, re.MULTILINE)
    return [name for name in found if name not in ("begin", "end")]


def run_php(
    programs: tuple[str, ...], broker: Served | Remote, home: Path
) -> Iterator[dict[str, str | None]]:
    """Run programs of PHP, once, and yield what went wrong in each of their scenarios."""
    bring(PHP / "usr" / "share" / "php" / "PhpAmqpLib" / "autoload.php")
    (interpreter,) = (PHP / "usr" / "bin").glob("php[0-9]*")
    (extensions,) = (PHP / "usr" / "lib" / "php").glob("20*")
    libraries = [str(path) for path in (PHP / "usr" / "lib").glob("*-linux-*")]
    path = ":".join([*libraries, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
    command = [str(interpreter), "-n", "-d", f"extension_dir={extensions}"]
    command += ["-d", f"include_path={PHP}/usr/share/php"]
    command += ["-d", "display_errors=stderr"]  # Standard output is what scenarios tell.
    for extension in "mbstring", "sockets", "amqp":
        command += ["-d", f"extension={extension}"]
    found: dict[str, str | None] = {}
    with Kept(home) as kept:
        told = {
            "shared": {"host": broker.host, "port": broker.port},
            "kept": {"host": kept.served.host, "port": kept.served.port, "tls": int(kept.tls)},
            "authority": str(kept.authority.ca),
            "certificate": str(kept.certificate),
            "key": str(kept.key),
        }
        for program in programs:
            words = [*command, str(HERE / "php" / program), json.dumps(told)]
            found |= scenarios_of(words, kept, home / "stderr", LD_LIBRARY_PATH=path)
        yield found


def hear(child: subprocess.Popen[str], kept: Kept, found: dict[str, str | None]) -> None:
    """Note what is told until the end, and do what is asked for."""
    assert child.stdin is not None
    assert child.stdout is not None
    for line in child.stdout:
        told: dict[str, Any] = json.loads(line)
        if "ask" in told:
            kept.answer(*told["ask"])
            with contextlib.suppress(BrokenPipeError):  # It has failed meanwhile, and says how.
                child.stdin.write("done\n")
                child.stdin.flush()
        else:
            found[told["scenario"]] = told["failure"]
    child.wait(PATIENCE_S)
