# SPDX-License-Identifier: Apache-2.0
"""The process of a relay: ``python -m headrace.server.relay.process LINK CONTROL``.

Both arguments are descriptors of Unix sockets, inherited from the broker. The process ends when
these sockets end, which happens at every end of the broker. It ignores the signals that terminals
and systemd send to all processes of a group: the broker handles them, and closes its clients first.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

from headrace.server.config.settings import Settings
from headrace.server.net.tls import TlsError, make_context
from headrace.server.relay.pump import Pump

FILES = ("tls_cert", "tls_key", "tls_ca", "tls_crl")


def pack_files(settings: Settings) -> bytes:
    """Return the message that tells relays the paths of a broker's TLS files."""
    paths = {name: getattr(settings, name) for name in FILES}
    named_paths = {
        name: str(Path(path).absolute()) for name, path in paths.items() if path is not None
    }
    return json.dumps({**named_paths, "tls_server_names": settings.tls_server_names}).encode()


def read_files(data: bytes) -> ssl.SSLContext:
    """Read the files in a result of :func:`pack_files`; return their TLS context.

    Raises:
        ValueError: a file cannot be used.
    """
    fields = json.loads(data)
    paths: dict[str, Any] = {name: Path(fields[name]) for name in FILES if name in fields}
    try:
        settings = Settings(tls_port=0, tls_server_names=fields["tls_server_names"], **paths)
        return make_context(settings)
    except TlsError as error:
        raise ValueError(str(error)) from None


def main() -> None:
    """Run until the broker has ended."""
    logging.basicConfig(format="relay %(process)d: %(levelname)s %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    link, control = (socket.socket(fileno=int(word)) for word in sys.argv[1:3])
    for end in (link, control):
        end.setblocking(False)
    pump = Pump(link, control, read_files)
    gc.freeze()
    pump.run()
    os._exit(0)  # Nothing needs a cleanup: the exit frees memory and sockets.


if __name__ == "__main__":
    main()
