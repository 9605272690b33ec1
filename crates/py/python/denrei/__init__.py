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

Settings are keyword arguments of `Node`; `denrei.SETTINGS` names them all. Everything that waits
takes a `timeout` in seconds (`None`: no limit) and releases the interpreter's lock. `denrei.aio` has
the same for `asyncio`.

>>> denrei.Node(failure_timeout="soon")
Traceback (most recent call last):
...
ValueError: failure_timeout is "soon", but has to be a time, such as 50us, 20ms, 1.5s or 2min
"""

from denrei._internal import (
    SETTINGS,
    DenreiError,
    Event,
    FlowState,
    Message,
    Node,
    Peer,
    PeerLost,
    QueueFull,
    __version__,
)

__all__ = [
    "SETTINGS",
    "DenreiError",
    "Event",
    "FlowState",
    "Message",
    "Node",
    "Peer",
    "PeerLost",
    "QueueFull",
    "__version__",
]
