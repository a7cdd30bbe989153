"""What callbacks and the terminal are shown of a run while it goes on."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.training.step import PrivateDiagnostics
    from tacit.training.trainer import Trainer

_EPSILONS = 20


class Progress:
    """How far a run has come, as its callbacks see it.

    ``step``, ``steps`` and :meth:`epsilon` may be published. ``private_diagnostics`` must not be: it holds
    the loss and the clipped share of the last batch, without noise, for the curator alone, and no file keeps
    it.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    @property
    def step(self) -> int:
        """Steps taken."""
        return self.trainer.step_number

    @property
    def steps(self) -> int:
        """Steps of the plan."""
        return self.trainer.plan.steps

    @property
    def epoch(self) -> float:
        """How many epochs the steps taken make up."""
        return self.step / self.trainer.plan.steps_per_epoch

    def epsilon(self) -> float:
        """ε of the steps taken, about 0.1 s of work."""
        return self.trainer.epsilon()

    @property
    def private_diagnostics(self) -> PrivateDiagnostics | None:
        """Loss and clipped share of the last batch, without noise: for the curator, never to be published."""
        return self.trainer.private_diagnostics

    def stop(self) -> None:
        """End the run after this step."""
        self.trainer.stop()


class Bar:
    """A bar with steps and ε so far, and the private diagnostics, marked as for the curator only."""

    def __init__(self, trainer: Trainer, wanted: bool | str | None) -> None:
        self.trainer = trainer
        self._private = wanted != "public"
        self._wanted = sys.stderr.isatty() if wanted in (None, "public") else bool(wanted)
        self._bar: Any = None
        self._every = max(1, trainer.plan.steps // _EPSILONS)
        self._next = 1
        self._epsilon = 0.0

    def __enter__(self) -> Bar:
        if self._wanted:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                TextColumn("{task.fields[public]}"), TextColumn("[dim]{task.fields[private]}"),
                console=Console(stderr=True), transient=False,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task("training", total=self.trainer.plan.steps, public="", private="")
        return self

    def show(self) -> None:
        """Show the step just taken."""
        if self._bar is None:
            return
        step = self.trainer.step_number
        if step >= self._next or step == self.trainer.plan.steps:
            self._next = step + self._every
            self._epsilon = self.trainer.epsilon()
        figures = self.trainer.private_diagnostics
        private = ""
        if figures is not None and self._private:
            private = f"curator only: loss {figures.loss:.3f}, clipped {figures.clipped:.0%}"
        self._bar.update(
            self._task, completed=step, public=f"ε {self._epsilon:.3f} δ {self.trainer.plan.delta:g}",
            private=private,
        )  # fmt: skip

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


class Interrupts:
    """A context in which the first Ctrl-C stops the run after its current step, and the second at once."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if callable(self._before):
                signal.signal(signal.SIGINT, self._first)
        return self

    def _first(self, number: int, frame: Any) -> None:
        print("tacit: stopping after this step; press Ctrl-C again to stop at once.", file=sys.stderr)
        signal.signal(signal.SIGINT, self._before)
        self._stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)
