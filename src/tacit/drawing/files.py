"""Figures that go to files."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from tacit.errors import InvalidValue, TacitError

__all__ = ["check_ending", "save"]


def check_ending(path: Path) -> None:
    """Refuse a file name whose ending names no format of pictures, before anything is drawn or spent."""
    kinds = tuple(Figure().canvas.get_supported_filetypes())
    if path.suffix.lstrip(".").lower() not in kinds:
        raise InvalidValue("plot", str(path), "a file name with a known ending", "Use .png, .svg or .pdf.")


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the ending of the name says in which format."""
    check_ending(path)
    try:
        with rc_context({"text.parse_math": False, "svg.fonttype": "none"}):
            figure.savefig(path)
    except OSError as error:
        raise TacitError(f"{path} cannot be written: {error.strerror}.", "Name another file.") from error
