"""denrei: reliable messages between the processes of a cluster, over one UDP port each.

>>> import denrei
>>> alice, bob = denrei.Node(), denrei.Node()
>>> peer = alice.connect(bob.address)
>>> peer.send(b"one order for many")
0
>>> message = bob.recv(timeout=5)
>>> bytes(message)
b'one order for many'
>>> message.peer.send_object({"thanks": [1, 2, 3]}, channel=1)
0
>>> alice.recv(timeout=5).object()
{'thanks': [1, 2, 3]}

One send reaches a whole group:

>>> members = [denrei.Node() for _ in range(3)]
>>> listeners = [node.join_group("239.255.78.61:7411") for node in members]
>>> with alice.open_group("239.255.78.61:7411", [node.address for node in members]) as group:
...     group.send(b"march")
...     [bytes(listener.accept(timeout=5).recv(timeout=5)) for listener in listeners]
0
[b'march', b'march', b'march']

Files and directories go to many at once by `Node.cast_send` and `Node.cast_receive`, and what a pipe or a
file brings by `Node.cast_send_stream` and `Node.cast_receive_stream`; a `Relay` joins networks that
cannot reach each other.

Many small messages go out with one system call, and are taken with one call:

>>> numbers = [peer.queue(b"%d paces" % n, channel=2) for n in range(3)]
>>> alice.send_queued()
>>> peer.flush(timeout=5)
True
>>> [bytes(message) for message in bob.drain() if isinstance(message, denrei.Message)]
[b'0 paces', b'1 paces', b'2 paces']

A node is closed with the last reference to it, or at once:

>>> with denrei.Node() as node:
...     node.connect(bob.address).flush(timeout=5)
True
>>> node.connect(bob.address)  # doctest: +ELLIPSIS
Traceback (most recent call last):
...
denrei.DenreiError: the node at 127.0.0.1:... was closed

Settings are keyword arguments of `Node`; `denrei.SETTINGS` names them all; options of a
group are those of `open_group` (`denrei.GROUP_OPTIONS`). Everything that waits
takes a `timeout` in seconds (`None`: no limit) and releases the interpreter's lock. `denrei.aio` has
the same for `asyncio`.

>>> denrei.Node(failure_timeout="soon")
Traceback (most recent call last):
...
ValueError: failure_timeout is "soon", but has to be a time from 10ms, such as 250ms, 1.5s or 2min
"""

from denrei._internal import (
    CAST_OPTIONS,
    GROUP_OPTIONS,
    SETTINGS,
    CastFailed,
    CastMember,
    CastProgress,
    CastReceipt,
    CastReport,
    Collective,
    DenreiError,
    Event,
    FlowState,
    Group,
    GroupClosed,
    GroupEvent,
    GroupListener,
    GroupMember,
    GroupStatus,
    Membership,
    Message,
    Node,
    Peer,
    PeerLost,
    QueueFull,
    Relay,
    RelayPair,
    __version__,
)

__all__ = [
    "CAST_OPTIONS",
    "GROUP_OPTIONS",
    "SETTINGS",
    "CastFailed",
    "CastMember",
    "CastProgress",
    "CastReceipt",
    "CastReport",
    "Collective",
    "DenreiError",
    "Event",
    "FlowState",
    "Group",
    "GroupClosed",
    "GroupEvent",
    "GroupListener",
    "GroupMember",
    "GroupStatus",
    "Membership",
    "Message",
    "Node",
    "Peer",
    "PeerLost",
    "QueueFull",
    "Relay",
    "RelayPair",
    "__version__",
]
