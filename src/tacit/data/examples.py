"""Examples in files: arrays in .npz, MNIST's idx files, folders of images by class.

Finding a source reads what is taken as public: the names and shapes in its header, the names of folders.
Checking it goes through its bytes, before anything is paid, and says of a file that is cut short or damaged
just that. Its examples are read later, once they are paid for. What is done to an example follows from public
rules alone, so that no message depends on what it holds:

- a label that is not a whole number from 0 to classes − 1 becomes −1: the example then adds nothing;
- an image that cannot be decoded is black, with the label −1;
- bytes are divided by 255; other numbers are taken as they are, and values that are not finite make the
  gradient of their example so, which then adds nothing.
"""

from __future__ import annotations

import gzip
import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tacit._extras import needed
from tacit.errors import InvalidValue, SourceMissing, TacitError

__all__ = ["Found", "Where", "find", "valid_labels"]

Array = NDArray[Any]

INPUTS = ("x", "X", "images", "inputs", "x_train", "X_train", "data")
TARGETS = ("y", "Y", "labels", "targets", "y_train", "Y_train", "target")
TEST_INPUTS, TEST_TARGETS = ("x_test", "X_test"), ("y_test", "Y_test")
SUFFIXES = (".png", ".jpg", ".jpeg")
_IDX = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_DAMAGED = (
    OSError, EOFError, ValueError, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile, struct.error
)  # fmt: skip
_CHANNELS = (1, 3, 4)
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Found:
    """A source of which only the header was read.

    ``private_rows`` is the number of examples, for the sampler alone; ``shape`` is that of one example,
    channels first; ``classes`` names the folders of a folder of images, and ``files`` the images.
    ``known`` says what was taken as public.
    """

    name: str
    private_rows: int
    shape: tuple[int, ...]
    known: str
    read: Callable[[], tuple[Array, Array | None]]
    """The examples as they are in the file, and their labels, if they were wanted."""
    check: Callable[[], None]
    """Goes through the file, and raises if :attr:`read` could not; it keeps nothing of the examples."""
    classes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """The names of images, one for each example, where they are files."""
    identity: str = ""
    """Which examples these are: two sources of one identity hold the same."""


@dataclass(frozen=True)
class Where:
    """How to find the examples in a source: names of arrays, size of images; ``test`` prefers test files."""

    inputs: str | None = None
    targets: str | None = None
    size: tuple[int, int] | None = None
    grey: bool = False
    labelled: bool = True
    test: bool = False
    classes: tuple[str, ...] = ()
    """The names of the classes, if known, which folders must bear; else they are those that are there."""


def find(path: Path, where: Where, labels: Path | None = None) -> Found:
    """The source at a path: an .npz file, an idx file of images (labels beside it), or a folder."""
    if not path.exists():
        raise SourceMissing(
            f"{str(path)!r} does not exist.", "Name an .npz file, an idx file or a folder.", path=path
        )
    if path.is_dir():
        pair = _pair_in(path, where)
        return _folder(path, where) if pair is None else _idx(*pair, where)
    if labels is not None:
        return _idx(path, labels, where)
    if zipfile.is_zipfile(path):
        return _npz(path, where)
    return _idx(path, _beside(path) if where.labelled else None, where)


def valid_labels(labels: Array, classes: int) -> NDArray[np.int64]:
    """Labels as whole numbers, −1 for each that is none from 0 to classes − 1."""
    with np.errstate(invalid="ignore"):
        known = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    return np.where(known, np.where(known, labels, 0).astype(np.int64), -1)


def _unusable(path: Path, what: str, advice: str = "") -> SourceMissing:
    return SourceMissing(f"{str(path)!r} {what}.", advice, path=path)


def _npz(path: Path, where: Where) -> Found:
    try:
        with zipfile.ZipFile(path) as archive:
            headers = {}
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as file:
                        headers[name.removesuffix(".npy")] = _npy_header(file)
    except _DAMAGED:
        raise _unusable(path, "cannot be read as .npz", "Write it with numpy.savez.") from None
    if not headers:
        raise _unusable(path, "holds no arrays", "Write it with numpy.savez(path, x=images, y=labels).")
    inputs, targets = (TEST_INPUTS + INPUTS, TEST_TARGETS + TARGETS) if where.test else (INPUTS, TARGETS)
    x = _named(path, headers, "inputs", where.inputs, inputs)
    shape, dtype = headers[x]
    form, arranged = _arranged(path, shape, dtype)
    y = None
    if where.labelled:
        y = _named(path, headers, "targets", where.targets, targets)
        _check_labels(path, y, *headers[y], rows=shape[0])

    def read() -> tuple[Array, Array | None]:
        try:
            with np.load(path, allow_pickle=False) as arrays:
                images = np.asarray(arrays[x])
                labels = None if y is None else np.asarray(arrays[y]).reshape(-1)
        except _DAMAGED:
            raise _damaged(path) from None
        return form(images), labels

    def check() -> None:
        try:
            with zipfile.ZipFile(path) as archive:
                for name in (x, y):
                    if name is not None:
                        with archive.open(f"{name}.npy") as file:
                            _npy_header(file)
                            _go_through(file, *headers[name])
        except _DAMAGED:
            raise _damaged(path) from None

    known = f"array {x!r} of {_times(arranged)} {dtype}" + ("" if y is None else f", labels in {y!r}")
    return Found(str(path), shape[0], arranged, known, read, check, identity=f"{path.resolve()} {x}")


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = readers[version](file)
    return shape, dtype


def _go_through(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Read what follows a header and keep nothing; ValueError if it is not an array of this shape."""
    left = math.prod(shape) * dtype.itemsize
    while part := file.read(_CHUNK):
        left -= len(part)
    if left:
        raise ValueError


def _named(
    path: Path, headers: Mapping[str, Any], option: str, wanted: str | None, usual: tuple[str, ...]
) -> str:
    if wanted is not None and wanted not in headers:
        raise InvalidValue(option, wanted, f"an array of {path}: " + ", ".join(map(repr, headers)))
    found = [wanted] if wanted is not None else [name for name in usual if name in headers]
    if len(found) != 1:
        there = ", ".join(map(repr, headers))
        what = "several arrays that may be" if found else "no array with a usual name for"
        raise _unusable(path, f"has {what} the {option}, among {there}", f"Say which: {option}=NAME.")
    return str(found[0])


def _arranged(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[Callable[[Array], Array], tuple[int, ...]]:
    """What brings examples of this shape into order, channels first, and the shape of one of them."""
    if dtype.kind not in "buif":
        raise _unusable(path, f"holds inputs of type {dtype}", "Inputs must be numbers or bytes.")
    if len(shape) not in (2, 3, 4) or math.prod(shape[1:]) < 1:
        raise _unusable(
            path, f"holds inputs of shape {_times(shape[1:]) or 'of one number'} each",
            "Each example must be a row of numbers, or an image with or without channels.",
        )  # fmt: skip
    if len(shape) == 2:
        return lambda values: values, shape[1:]
    if len(shape) == 3:
        return lambda values: values[:, None], (1, *shape[1:])
    if shape[3] in _CHANNELS and shape[1] not in _CHANNELS:
        return lambda values: np.moveaxis(values, 3, 1), (shape[3], shape[1], shape[2])
    return lambda values: values, shape[1:]


def _check_labels(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, rows: int) -> None:
    one_each = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
    if dtype.kind not in "buif" or not one_each:
        raise _unusable(
            path, f"holds labels {name!r} of type {dtype} and {len(shape)} dimensions",
            "There must be one number for each example, from 0 to classes − 1.",
        )  # fmt: skip
    if shape[0] != rows:
        raise _unusable(path, "does not hold as many labels as examples")


def _damaged(path: Path) -> TacitError:
    return _unusable(path, "is damaged: its examples could not be read", "Get the file again.")


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if packed else path.open("rb")  # type: ignore[return-value]


def _idx_header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        with _opened(path) as file:
            zero, kind, dimensions = struct.unpack(">HBB", file.read(4))
            shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
            if zero or kind not in _IDX or not dimensions:
                raise ValueError
    except FileNotFoundError:
        raise _unusable(path, "does not exist", "Name the file of labels with labels=.") from None
    except _DAMAGED:
        raise _unusable(path, "is neither an .npz file nor an idx file, packed by gzip or not") from None
    return shape, np.dtype(_IDX[kind])


def _idx_values(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    try:
        with _opened(path) as file:
            file.read(4 + 4 * len(shape))
            values = np.frombuffer(file.read(), dtype=dtype).reshape(shape)
    except _DAMAGED:
        raise _damaged(path) from None
    return values.astype(dtype.newbyteorder("="))


def _check_idx(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    try:
        with _opened(path) as file:
            file.read(4 + 4 * len(shape))
            _go_through(file, shape, dtype)
    except _DAMAGED:
        raise _damaged(path) from None


def _idx(images: Path, labels: Path | None, where: Where) -> Found:
    shape, dtype = _idx_header(images)
    form, arranged = _arranged(images, shape, dtype)
    header = None
    if labels == images and where.labelled:
        raise _unusable(images, "has a name from which that of its labels does not follow", "Add labels=.")
    if labels is not None and where.labelled:
        header = _idx_header(labels)
        _check_labels(labels, labels.name, *header, rows=shape[0])

    def read() -> tuple[Array, Array | None]:
        found = None if header is None or labels is None else _idx_values(labels, *header).reshape(-1)
        return form(_idx_values(images, shape, dtype)), found

    def check() -> None:
        _check_idx(images, shape, dtype)
        if header is not None and labels is not None:
            _check_idx(labels, *header)

    known = f"images of {_times(arranged)} {dtype}"
    return Found(str(images), shape[0], arranged, known, read, check, identity=str(images.resolve()))


def _beside(images: Path) -> Path:
    """The labels that belong to a file of images, by MNIST's names."""
    return images.with_name(images.name.replace("images", "labels").replace("idx3", "idx1"))


def _pair_in(folder: Path, where: Where) -> tuple[Path, Path] | None:
    pairs = [(path, _beside(path)) for path in sorted(folder.glob("*images*idx*")) if _beside(path).exists()]
    first = ("t10k", "test") if where.test else ("train",)
    preferred = [pair for pair in pairs if pair[0].name.startswith(first)]
    if not preferred:
        preferred = [pair for pair in pairs if not (where.test and pair[0].name.startswith("train"))]
    if len(preferred) > 1:
        names = ", ".join(pair[0].name for pair in preferred)
        raise _unusable(folder, f"holds several idx files of images: {names}", "Name one of them.")
    return preferred[0] if preferred else None


def _folder(folder: Path, where: Where) -> Found:
    if where.labelled:
        names = _class_names(folder, where.classes)
        files = [(path, place) for place, name in enumerate(names) for path in _images(folder / name)]
    else:
        names, files = where.classes, [(path, -1) for path in _images(folder, deep=True)]
    if where.size is None:
        raise InvalidValue("size", None, "given for a folder of images, such as size=(32, 32)")
    with needed("Folders of images"):
        import PIL  # noqa: F401
    shape = (1 if where.grey else 3, *where.size)

    def read() -> tuple[Array, Array | None]:
        images = np.zeros((len(files), *shape), np.uint8)
        labels = np.full(len(files), -1, np.int64)
        for row, (path, label) in enumerate(files):
            decoded = _decoded(path, shape)
            if decoded is not None:
                images[row], labels[row] = decoded, label
        return images, labels if where.labelled else None

    def check() -> None:
        for path, _ in files:
            try:
                path.open("rb").close()
            except OSError as error:
                raise _unusable(path, f"cannot be opened: {error.strerror}", "Make it readable.") from None

    known = f"names of the folders as classes; every image made {_times(shape)}"
    listed = tuple(str(path.relative_to(folder)) for path, _ in files)
    return Found(str(folder), len(files), shape, known, read, check, names, listed, str(folder.resolve()))


def _class_names(folder: Path, known: tuple[str, ...]) -> tuple[str, ...]:
    """The classes of images that lie in folders by class: the known ones, or those that are there.

    Names alone decide, and not whether there is anything in a folder.
    """
    there = sorted(each.name for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")
    if len(known or there) < 2 or not there:
        raise _unusable(
            folder, "holds neither idx files nor a folder for each of two classes or more",
            "Put the images of each class into a folder of its own.",
        )  # fmt: skip
    for name in there:
        if known and name not in known:
            names = ", ".join(known)
            raise _unusable(
                folder, f"holds a folder {name!r}, which is no class of the network",
                f"Name folders by its classes: {names if len(names) < 200 else names[:200] + ' …'}",
            )  # fmt: skip
    return known or tuple(there)


def _images(folder: Path, *, deep: bool = False) -> list[Path]:
    there = folder.rglob("*") if deep else folder.glob("*")
    return sorted(each for each in there if each.suffix.lower() in SUFFIXES and not each.is_dir())


def _decoded(path: Path, shape: tuple[int, ...]) -> Array | None:
    """The image in this shape, or None for whatever cannot be decoded."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=("PNG", "JPEG")) as image:
            plain = image.convert("L" if shape[0] == 1 else "RGB").resize((shape[2], shape[1]))
    except Exception:
        return None
    return np.moveaxis(np.asarray(plain).reshape(*shape[1:], shape[0]), 2, 0)


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))
