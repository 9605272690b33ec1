"""Memory that is no bytes to send or to receive into."""

import denrei
import numpy as np
import pytest


@pytest.mark.parametrize("dtype", ["O", [("name", "O"), ("size", "i4")], ("O", (2, 2))])
def test_addresses_of_python_objects_are_neither_sent_nor_written_over(dtype):
    held = np.zeros(3, dtype=dtype)
    with denrei.Node(drive="thread") as a, denrei.Node(offers="ask", offer_above_bytes="4KiB") as b:
        peer = a.connect(b.address)
        for send in (peer.send, peer.queue, lambda data: peer.send_within(data, 10.0)):
            with pytest.raises(ValueError, match="send_object"):
                send(held)
        peer.send_object(held)
        assert np.array_equal(b.recv(timeout=10).object(), held)
        peer.send(bytes(2_000_000))
        while (offered := b.event(timeout=10)).kind != "offered":
            pass
        with pytest.raises(ValueError, match="Python objects"):
            offered.peer.accept(offered.channel, offered.number, np.zeros(2_000_000, dtype=dtype))
        fields = np.zeros(2_000_000, dtype=[("O", "u1")])
        offered.peer.accept(offered.channel, offered.number, fields)
        assert len(b.recv(timeout=10)) == 0


def test_what_is_not_in_one_piece_is_refused_with_what_to_do_instead():
    with denrei.Node(drive="thread") as a, denrei.Node(offers="ask") as b:
        peer = a.connect(b.address)
        table = np.zeros((2000, 1000), dtype="u1")
        for piece in (table[:, ::2], table.T):
            with pytest.raises(ValueError, match="C's order: send a contiguous copy"):
                peer.send(piece)
        peer.send(bytes(2_000_000))
        while (offered := b.event(timeout=10)).kind != "offered":
            pass
        # A copy of the target would be filled, and not the target.
        with pytest.raises(ValueError, match="C's order: receive into one that is"):
            offered.peer.accept(offered.channel, offered.number, table.T)
        offered.peer.accept(offered.channel, offered.number, table)
        assert len(b.recv(timeout=10)) == 0
