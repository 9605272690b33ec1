# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How long does a message take, and what does a group save?
#
# A notebook in [jupytext's percent format](https://jupytext.readthedocs.io): open it in Jupyter with
# jupytext, in VS Code, or run it as a program; `python measure.py OUT.svg` writes the figure.
# It needs `denrei`, `numpy` and `matplotlib`.
#
# Everything is on this machine. What is measured is the library and Python around it, not a network.

# %%
import socket
import subprocess
import sys
import time

import denrei
import matplotlib.pyplot as plt
import numpy as np

# %% [markdown]
# ## Round trips
#
# Another process sends back whatever comes: once over denrei, once over TCP. With `drive="inline"` the
# thread that calls does the Node's work itself, which is the quickest for one exchange at a time. What
# TCP carries is a stream, so its programs count bytes; denrei carries messages.

# %%
DENREI_ECHO = """
import denrei
node = denrei.Node(drive="inline")
print(node.address, flush=True)
while True:
    message = node.recv()
    message.peer.send(message)
"""

TCP_ECHO = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print("%s:%d" % listener.getsockname(), flush=True)
stream, _ = listener.accept()
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := stream.recv(1 << 20):
    stream.sendall(data)
"""


class Echo:
    """A process that sends back what it gets, as long as the `with` block lasts."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()

    def __enter__(self) -> str:
        return self.address

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()


def timed(exchange, data: bytes, times: int) -> np.ndarray:
    """How long each of some exchanges took, microseconds."""
    for _ in range(times // 10 + 1):
        exchange(data)
    took = np.empty(times)
    for turn in range(times):
        began = time.perf_counter()
        exchange(data)
        took[turn] = (time.perf_counter() - began) * 1e6
    return took


def over_denrei(sizes: list[int], times: int) -> list[np.ndarray]:
    node = denrei.Node(drive="inline")
    with Echo(DENREI_ECHO) as address:
        peer = node.connect(address)

        def exchange(data: bytes) -> None:
            peer.send(data)
            assert len(peer.recv(timeout=10)) == len(data)

        return [timed(exchange, bytes(size), times) for size in sizes]


def over_tcp(sizes: list[int], times: int) -> list[np.ndarray]:
    with Echo(TCP_ECHO) as address:
        host, port = address.split(":")
        stream = socket.create_connection((host, int(port)))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def exchange(data: bytes) -> None:
            stream.sendall(data)
            missing = len(data)
            while missing:
                missing -= len(stream.recv(missing))

        with stream:
            return [timed(exchange, bytes(size), times) for size in sizes]


SIZES = [64, 1024, 16 * 1024, 128 * 1024]
TIMES = 300
round_trips = {"denrei": over_denrei(SIZES, TIMES), "TCP": over_tcp(SIZES, TIMES)}
for name, rows in round_trips.items():
    for size, row in zip(SIZES, rows):
        print(f"{name:7} {size:7} B: median {np.median(row):7.1f} us, p99 {np.percentile(row, 99):7.1f} us")

# %% [markdown]
# ## One to many
#
# The same array to 1, 2, 4 and 8 nodes: sent to each of them, and sent once to a group. What went over
# the wire is what the nodes counted.

# %%
GROUP_ADDRESS = "239.255.78.90:7490"
ARRAY = np.random.default_rng(1).normal(size=250_000)


def one_by_one(count: int) -> tuple[float, int]:
    """Seconds and bytes that it takes to send the array to each of some nodes."""
    opener, nodes = denrei.Node(), [denrei.Node() for _ in range(count)]
    peers = [opener.connect(node.address) for node in nodes]
    began = time.perf_counter()
    for peer in peers:
        peer.send(ARRAY)
    for node in nodes:
        assert np.array_equal(np.frombuffer(node.recv(timeout=30)), ARRAY)
    return time.perf_counter() - began, count * ARRAY.nbytes


def by_group(count: int) -> tuple[float, int]:
    """Seconds and bytes that it takes to send the array to a group of nodes."""
    opener, nodes = denrei.Node(), [denrei.Node() for _ in range(count)]
    listeners = [node.join_group(GROUP_ADDRESS) for node in nodes]
    with opener.open_group(GROUP_ADDRESS, [node.address for node in nodes]) as group:
        members = [listener.accept(timeout=30) for listener in listeners]
        began = time.perf_counter()
        group.send(ARRAY)
        for member in members:
            assert np.array_equal(np.frombuffer(member.recv(timeout=30)), ARRAY)
        return time.perf_counter() - began, group.status.bytes_sent


COUNTS = [1, 2, 4, 8]
one_to_many = {
    "one by one": [one_by_one(count) for count in COUNTS],
    "group": [by_group(count) for count in COUNTS],
}
for name, rows in one_to_many.items():
    for count, (seconds, sent) in zip(COUNTS, rows):
        print(f"{name:10} {count} nodes: {seconds * 1e3:6.1f} ms, {sent / 1e6:5.1f} MB sent")

# %% [markdown]
# ## The figure
#
# Bars from the median to the 99th percentile, then what was sent to how many.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for name, rows in round_trips.items():
    median = np.array([np.median(row) for row in rows])
    above = np.array([np.percentile(row, 99) for row in rows]) - median
    left.errorbar(SIZES, median, yerr=[np.zeros_like(above), above], marker="o", capsize=3, label=name)
left.set(xscale="log", yscale="log", xlabel="bytes", ylabel="round trip, µs")
left.set_title("median to 99th percentile")
left.legend()
for name, rows in one_to_many.items():
    right.plot(COUNTS, [sent / 1e6 for _, sent in rows], marker="o", label=name)
right.set(xlabel="receivers", ylabel="MB sent", title=f"an array of {ARRAY.nbytes / 1e6:.0f} MB")
right.set_ylim(bottom=0)
right.legend()
if len(sys.argv) == 2 and sys.argv[1].endswith((".svg", ".png", ".pdf")):
    figure.savefig(sys.argv[1])
plt.show()
