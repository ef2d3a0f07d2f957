"""Changes to a server's configuration tree that can be shown, made twice, and taken back exactly.

A change is a file of our own, a symbolic link, or a marked block in somebody else's file. What is ours is
known by MARK: a file by its first line, a block by the lines around it. Nothing is remembered elsewhere, so
that `--remove` works after years and on another machine.
"""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tapscope.store.errors import TapscopeError

MARK = "tapscope monitors"
_BEGIN = f"{MARK}: begin"
_END = f"{MARK}: end"


@dataclass(frozen=True)
class OwnFile:
    """A file that is ours alone. path: relative to the tree; content: text with MARK in one of its first two
    lines, or what makes a binary file (not asked when it is to be removed)."""

    path: str
    content: str | Callable[[], bytes]

    def data(self) -> bytes:
        """The content as bytes."""
        return self.content.encode() if isinstance(self.content, str) else self.content()


@dataclass(frozen=True)
class Link:
    """A symbolic link that is ours. target: as the link holds it."""

    path: str
    target: str


@dataclass(frozen=True)
class Block:
    """Lines in a file that is not ours, between two comment lines.

    before: the block goes in front of the last line that contains this text; '': at the top of the file.
    comment: how the file's format begins and ends a comment.
    """

    path: str
    text: str
    before: str = ""
    comment: tuple[str, str] = ("# ", "")

    def lines(self) -> list[str]:
        """The block with its marks, each line with its end."""
        marks = (f"{self.comment[0]}{mark}{self.comment[1]}\n" for mark in (_BEGIN, _END))
        begin, end = marks
        return [begin, *(f"{line}\n" for line in self.text.splitlines()), end]


Change = OwnFile | Link | Block


@dataclass(frozen=True)
class Step:
    """What happens to one path. before, after: content, None where there is no file; a link is its target."""

    path: Path
    before: bytes | None
    after: bytes | None
    link: bool = False

    @property
    def done(self) -> bool:
        """Whether there is nothing to do."""
        return self.before == self.after

    @property
    def verb(self) -> str:
        """In a word, for people."""
        if self.done:
            return "unchanged"
        return "create" if self.before is None else "delete" if self.after is None else "change"

    def diff(self) -> str:
        """Unified diff; of a link or a binary file one line."""
        texts = [None if data is None else _text(data) for data in self._both()]
        binary = [data is not None and text is None for data, text in zip(self._both(), texts, strict=True)]
        if self.link or any(binary):
            shown = f" -> {self.after.decode()}" if self.link and self.after is not None else ""
            return f"{self.verb} {self.path}{shown}\n"
        old, new = ((text or "").splitlines(keepends=True) for text in texts)
        was, is_now = ("/dev/null" if data is None else str(self.path) for data in self._both())
        return "".join(difflib.unified_diff(old, new, was, is_now))

    def _both(self) -> tuple[bytes | None, bytes | None]:
        return self.before, self.after


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def steps(root: Path, changes: list[Change], *, remove: bool = False) -> list[Step]:
    """What has to happen in the tree so that the changes are made, or taken back.

    Raises TapscopeError for a file that we would create and that is there and not ours, for a file that
    should get a block and is missing or has no place for it, and for one that cannot be read.
    """
    return [_step(root, change, remove) for change in changes]


def _step(root: Path, change: Change, remove: bool) -> Step:
    path = root / change.path
    if isinstance(change, Link):
        now = str(path.readlink()).encode() if path.is_symlink() else None
        if now is None and path.exists():
            raise _not_ours(path)
        if now is not None and now != change.target.encode():
            if remove:
                return Step(path, now, now, link=True)
            raise _not_ours(path)
        return Step(path, now, None if remove else change.target.encode(), link=True)
    before = _read(path)
    if isinstance(change, OwnFile):
        if before is not None and not _is_ours(before, change):
            raise _not_ours(path)
        return Step(path, before, None if remove else change.data())
    if before is None:
        if remove:
            return Step(path, None, None)
        raise TapscopeError(
            "the file is missing", path=path, remedy="Name the configuration tree with --into."
        )
    without = _without_block(before.decode("utf-8", errors="surrogateescape"), path)
    after = without if remove else _with_block(without, change, path)
    return Step(path, before, after.encode("utf-8", errors="surrogateescape"))


def _is_ours(data: bytes, change: OwnFile) -> bool:
    if not isinstance(change.content, str):
        return True  # a jar has no place for a mark; its name is ours
    return any(MARK.encode() in line for line in data.splitlines()[:2])


def _not_ours(path: Path) -> TapscopeError:
    return TapscopeError(
        "there is a file of this name that tapscope has not made", path=path, remedy="Move it away first."
    )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> TapscopeError:
    return TapscopeError(
        f"{error.strerror}", path=path, remedy="Run it as the owner of the configuration (sudo)."
    )


def _without_block(text: str, path: Path) -> str:
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        if _BEGIN in line:
            inside = True
        if not inside:
            kept.append(line)
        if _END in line:
            inside = False
    if inside:
        raise TapscopeError(
            f"the line {_END!r} is missing",
            path=path,
            remedy=f"Put it behind what stands after {_BEGIN!r}, or delete both by hand.",
        )
    return "".join(kept)


def _with_block(text: str, change: Block, path: Path) -> str:
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if change.before in line] if change.before else [0]
    if not places:
        raise TapscopeError(
            f"no line with {change.before!r}", path=path, remedy="Put the lines of --print in by hand."
        )
    at = places[-1]
    return "".join([*lines[:at], *change.lines(), *lines[at:]])


def carry_out(root: Path, planned: list[Step]) -> list[Step]:
    """Does what is planned and returns the steps that changed something. Each file changes in one piece.

    Folders that a file of ours needs are made; one that removing leaves empty is removed if its name is
    `tapscope`.
    """
    made = []
    for step in planned:
        if step.done:
            continue
        try:
            if step.after is None:
                step.path.unlink()
                if step.path.parent.name == "tapscope" and not any(step.path.parent.iterdir()):
                    step.path.parent.rmdir()
            elif step.link:
                step.path.symlink_to(step.after.decode())
            else:
                step.path.parent.mkdir(parents=True, exist_ok=True)
                _write(step.path, step.after)
        except OSError as error:
            raise _refused(step.path, error) from error
        made.append(step)
    return made


def _write(path: Path, data: bytes) -> None:
    """Replaces a file in one piece, with the owner and mode it had."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    made = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        if target.exists():
            was = target.stat()
            made.chmod(was.st_mode & 0o7777)
            if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(made, was.st_uid, was.st_gid)
        else:
            made.chmod(0o644)
        made.replace(target)
    except OSError:
        made.unlink(missing_ok=True)
        raise


def state(planned: list[Step]) -> str:
    """Of steps that would install: installed, partly (or an older version), not installed."""
    if all(step.done for step in planned):
        return "installed"
    fresh = all(
        step.before is None or (not step.done and _BEGIN.encode() not in step.before) for step in planned
    )
    return "not installed" if fresh else "partly installed, or by another version"


def printed(changes: list[Change]) -> Iterator[str]:
    """The changes as text to be put in by hand."""
    for change in changes:
        if isinstance(change, Link):
            yield f"# {change.path}: link to {change.target}\n"
        elif isinstance(change, OwnFile) and not isinstance(change.content, str):
            yield f"# {change.path}: built by `tapscope monitors install`\n"
        elif isinstance(change, OwnFile):
            yield f"# {change.path}\n{change.data().decode()}"
        else:
            place = f"in front of the last {change.before!r}" if change.before else "at the top"
            yield f"# {change.path}, {place}:\n{''.join(change.lines())}"
