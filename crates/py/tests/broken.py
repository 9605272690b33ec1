"""Sockets that are closed under a node, as by a program that becomes a daemon and closes all it does not know."""

import contextlib
import os


def sockets():
    """The descriptors of this process that are sockets."""
    names = {}
    for number in os.listdir("/proc/self/fd"):
        # One is that of the list itself.
        with contextlib.suppress(OSError):
            names[int(number)] = os.readlink(f"/proc/self/fd/{number}")
    return {number for number, name in names.items() if name.startswith("socket:")}


def fail(numbers):
    """Closes them: nothing comes there, and the numbers are nobody else's."""
    with open(os.devnull, "rb") as nothing:
        for number in numbers:
            os.dup2(nothing.fileno(), number)
