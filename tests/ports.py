"""Ports for servers of the tests."""

import socket


def free_port() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]
