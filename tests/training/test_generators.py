"""The process's generator of random numbers, which all threads that train share."""

from __future__ import annotations

import threading

import torch

from tacit.training.isolation.generators import generators_held, generators_kept, generators_seeded


def test_steps_that_overlap_leave_the_generator_as_it_was() -> None:
    """Whichever ends first: no state is left behind that a pass has moved."""
    before = torch.get_rng_state()
    first, second = generators_seeded(1), generators_seeded(2)
    first.__enter__()
    torch.rand(3)
    second.__enter__()
    torch.rand(5)
    first.__exit__(None, None, None)
    torch.rand(7)
    second.__exit__(None, None, None)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_step_lets_other_threads_run_passes_and_a_pass_does_not() -> None:
    entered = threading.Event()

    def other() -> None:
        with generators_kept():
            entered.set()

    with generators_seeded(1):
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(120)
        thread.join()
    entered.clear()
    with generators_held():
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.2)
    thread.join()
    assert entered.is_set()
