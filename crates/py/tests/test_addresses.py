"""Addresses from Python: one of a link names this host's interface to it."""

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
