"""Addresses from Python: one of a link names this host's interface to it, and several come in a sequence."""

import denrei
import pytest


def test_an_interface_that_is_not_there_is_refused_in_words():
    node = denrei.Node()
    with pytest.raises(ValueError, match='no interface "no-such"'):
        node.connect("[fe80::7%no-such]:9")


def test_an_interface_is_taken_by_its_name():
    node = denrei.Node()
    with pytest.raises(ValueError, match=r"\[fe80::7%1\]:9 cannot be reached .* other IP version"):
        node.connect("[fe80::7%lo]:9")


@pytest.mark.parametrize("length", [2**46, 2**62])
def test_a_sequence_is_believed_no_length(length):
    a, b = denrei.Node(), denrei.Node()
    endless, group = range(length), "239.255.80.1:9"
    for call in [
        lambda: a.open_group(group, endless),
        lambda: denrei.Collective(a, endless, group),
        lambda: a.cast_send(endless, [b.address]),
        lambda: a.cast_send(["/etc/hostname"], endless),
        lambda: a.cast_send_stream(0, endless),
        lambda: denrei.Relay(endless),
        lambda: a.drain(channels=endless),
    ]:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="from 0 to 65535"):
        a.drain(leave=endless)
