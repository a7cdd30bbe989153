"""Where a ledger is: the path of a SQLite file, or a database URL."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import sqlalchemy as sa

from tacit.errors import InvalidValue, LedgerCorrupted, LedgerError, LedgerMissing, LedgerUnwritable

__all__ = ["Location"]

_SQLITE = b"SQLite format 3\0"
_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


@dataclass(frozen=True)
class Location:
    """``url`` for the database, ``path`` of the file if there is one, ``name`` without password."""

    url: sa.URL
    path: Path | None
    name: str

    @classmethod
    def of(cls, location: str | os.PathLike[str]) -> Location:
        """Read a path or URL; anything else is a clear error."""
        if not isinstance(location, (str, os.PathLike)) or not os.fspath(location):
            raise InvalidValue("location", location, "the path of a file, or a database URL")
        text = os.fspath(location)
        if isinstance(location, str) and "://" in text:
            return cls._of_url(text)
        _refuse_memory(text, text)
        return cls(sa.URL.create("sqlite+pysqlite", database=text), Path(text), text)

    @classmethod
    def _of_url(cls, text: str) -> Location:
        try:
            url = sa.make_url(text)
        except (sa.exc.ArgumentError, ValueError):
            scheme = text.partition("://")[0]
            raise LedgerError(
                f"This {scheme} URL cannot be read.",
                "Write postgresql://user:password@host:5432/database, or a path.",
                location=scheme,
            ) from None
        name = url.update_query_dict(dict.fromkeys(_passwords(url), "hidden")).render_as_string()
        if url.drivername not in _DRIVERS:
            raise LedgerError(
                f"A ledger cannot be kept in {url.drivername!r} ({name}).",
                "Use the path of a file, sqlite:///study.db, or postgresql://host/database.",
                location=name,
            )
        url = url.set(drivername=_DRIVERS[url.drivername])
        if url.get_backend_name() != "sqlite":
            return cls(url, None, name)
        database = url.database or ""
        _refuse_memory(database, name)
        path = urlsplit(database).path if database.startswith("file:") else database
        return cls(url, Path(path), name)

    @property
    def secret(self) -> bool:
        """Whether the URL holds a password, before the host or among the settings."""
        return self.url.password is not None or bool(_passwords(self.url))

    def require(self) -> None:
        """Check that a ledger may be there to be opened; LedgerMissing if it cannot."""
        if self.path is not None and not self.path.exists():
            raise self.missing()
        self._refuse_strangers()

    def require_room(self) -> None:
        """Check that a ledger can be created there."""
        if self.path is not None and not self.path.parent.is_dir():
            raise LedgerUnwritable(
                f"The directory of the ledger {self.name} does not exist.",
                f"Create {self.path.parent} first.",
                location=self.name,
            )
        self._refuse_strangers()

    def missing(self) -> LedgerMissing:
        """The error for a ledger that is not there."""
        return LedgerMissing(
            f"There is no ledger at {self.name}.",
            f"Make one: tacit ledger init {self.name} --epsilon 1, or in Python "
            f"tacit.Ledger.open({self.name!r}, budget=tacit.Budget(1.0)).",
            location=self.name,
        )

    def absent(self) -> LedgerError:
        """The error for a database without a ledger: a file that is there has lost it, or none was begun."""
        return self.missing() if self.path is None else self.emptied()

    def emptied(self) -> LedgerCorrupted:
        """The error for an empty file where a ledger should be or begin."""
        return LedgerCorrupted(
            f"{self.name} is there and empty: a ledger in it has been emptied, or none was begun.",
            "Restore it from a backup; what was spent is spent. If there never was one, delete the file.",
            location=self.name,
        )

    def beside(self) -> Location:
        """A place in the same directory for a ledger that is being made."""
        assert self.path is not None
        path = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        return Location(sa.URL.create("sqlite+pysqlite", database=str(path)), path, self.name)

    def take_place_of(self, other: Location) -> None:
        """Give the file its name, unless another process has just made one of that name."""
        assert self.path is not None
        assert other.path is not None
        with suppress(FileExistsError):
            try:
                os.link(self.path, other.path)
            except (OSError, NotImplementedError) as error:
                if isinstance(error, FileExistsError):
                    raise
                # No links on this file system.
                os.close(os.open(other.path, os.O_CREAT | os.O_EXCL))
                os.replace(self.path, other.path)
            if hasattr(os, "O_DIRECTORY"):
                folder = os.open(other.path.parent, os.O_DIRECTORY)
                os.fsync(folder)
                os.close(folder)

    def remove(self) -> None:
        """Remove the file, and what SQLite may have left beside it."""
        assert self.path is not None
        for end in ("", "-journal", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)

    def _refuse_strangers(self) -> None:
        if self.path is None:
            return
        if self.path.is_dir():
            raise LedgerCorrupted(
                f"{self.name} is a directory, not a ledger.",
                f"Name a file in it, such as {self.path / 'study.db'}.",
                location=self.name,
            )
        if self.path.is_file() and os.access(self.path, os.R_OK):
            with self.path.open("rb") as file:
                opening = file.read(len(_SQLITE))
            if opening not in (b"", _SQLITE):
                raise LedgerCorrupted(
                    f"{self.name} is not a ledger, or its beginning is damaged.",
                    "Name another file, or restore it from a backup.",
                    location=self.name,
                )


def _passwords(url: sa.URL) -> list[str]:
    """The settings that are passwords: ``password`` and ``sslpassword`` of PostgreSQL."""
    return [name for name in url.query if name.lower().endswith("password")]


def _refuse_memory(database: str, name: str) -> None:
    if database in ("", ":memory:") or "mode=memory" in name:
        raise LedgerError("A ledger in memory would forget what was spent.", "Name a file.", location=name)
