# SPDX-License-Identifier: Apache-2.0
"""Ports that are reserved: for the servers that are told their number, and for nothing else."""

from __future__ import annotations

import gc
import socket
import sys

import pytest

from headrace.testing import LocalBroker
from headrace.testing.ports import reserve, reserve_for

IP_LOCAL_PORT_RANGE = 51  # Of Linux since 6.3: the ports that the kernel assigns to one socket.


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_servers_come_and_go_on_a_reserved_port(host: str) -> None:
    with reserve(host) as reserved:
        family, address = reserved.family, (host, reserved.getsockname()[1])
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
            with socket.create_server(address, family=family) as server:
                socket.create_connection(address).close()
                server.accept()[0].close()


def test_the_kernel_assigns_a_reserved_port_to_no_other_socket() -> None:
    with reserve() as reserved, socket.socket() as other:
        port = reserved.getsockname()[1]
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            only = (port << 16 | port).to_bytes(4, sys.byteorder)  # The highest and the lowest.
            other.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, only)
        except OSError:
            pytest.skip("this kernel has no range of ports for a socket")
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", 0))
        reserved.close()
        other.bind(("127.0.0.1", 0))
        assert other.getsockname()[1] == port


def test_a_port_is_reserved_as_long_as_its_owner_lives() -> None:
    broker = LocalBroker()
    port = reserve_for(broker)
    with pytest.raises(OSError, match="Address already in use"):
        plain(port)
    del broker
    gc.collect()
    plain(port)


def plain(port: int) -> None:
    """Bind a port as no server does."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


@pytest.mark.parametrize("host", ["192.0.2.1", "localhost", "127.0.0.1,::1", ""])
def test_what_is_not_one_address_of_this_machine_has_no_reserved_port(host: str) -> None:
    assert reserve_for(sys.modules[__name__], host) == 0


def test_the_port_of_a_broker_is_reserved_while_it_is_down() -> None:
    with LocalBroker() as broker:
        port = broker.port
        broker.stop()
        with pytest.raises(OSError, match="Address already in use"):
            plain(port)
        broker.start()
        assert broker.port == port
