"""Ctrl-C while a result is in hand."""
from __future__ import annotations

import os
import signal
import threading

import pytest

from memonger.util.signals import collected, deferred


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_is_collected():
    raised: list = []
    with collected(raised):
        press_ctrl_c()
    assert [type(error) for error in raised] == [KeyboardInterrupt]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_first_interrupt_is_deferred_and_the_second_one_raised():
    with deferred():
        press_ctrl_c()
    with pytest.raises(KeyboardInterrupt), deferred():
        press_ctrl_c()
        press_ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_with_its_own_handler_keeps_it():
    seen: list = []
    own = signal.signal(signal.SIGINT, lambda *_: seen.append("own"))
    try:
        with collected([]), deferred():
            press_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, own)
    assert seen == ["own"]


def test_other_threads_may_use_it():
    done: list = []

    def work() -> None:
        with collected([]), deferred():
            done.append(True)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
