"""Who runs PostgreSQL's programs, and what that user can reach: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sa_jobqueue.testing._binaries import Binaries
from sa_jobqueue.testing.server import PostgresUnavailableError

LONGEST_FOLDER = 60  # a socket's path, with our names in it, must stay below 104 bytes


@dataclass(frozen=True, slots=True)
class Account:
    """Who runs PostgreSQL's programs; None stands for ourselves."""

    user: int | None = None
    group: int | None = None

    @property
    def extra_groups(self) -> list[int] | None:
        return None if self.user is None else []


def current_account() -> Account:
    """Ourselves, or the user nobody when we are root. Raises PostgresUnavailableError where neither can be."""
    if os.name != "posix":
        raise PostgresUnavailableError(
            "A private PostgreSQL needs Unix sockets. On this system give the URL of a server for tests:"
            " SA_JOBQUEUE_TEST_DATABASE_URL=postgresql+psycopg://user:password@host/postgres"
        )
    if os.geteuid() != 0:
        return Account()
    import pwd  # exists on POSIX only

    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise PostgresUnavailableError(
            "PostgreSQL refuses to run as root, and there is no user nobody here: start as an ordinary user."
        ) from None
    return Account(user=nobody.pw_uid, group=nobody.pw_gid)


def parent_folder(account: Account) -> Path:
    """A temporary folder which that account can reach and whose path leaves room for a socket's name."""
    for candidate in (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - a private folder is made inside
        folder = candidate.resolve()
        if len(os.fsencode(folder)) > LONGEST_FOLDER or not os.access(folder, os.W_OK | os.X_OK):
            continue
        if account.user is not None and not all(
            step.stat().st_mode & 0o001 for step in (folder, *folder.parents)
        ):
            continue
        return folder
    raise PostgresUnavailableError(
        f"No temporary folder is writable and has a path short enough for a socket ({LONGEST_FOLDER} bytes):"
        " set TMPDIR to one."
    )


def reachable(binaries: Binaries, copy: Path, account: Account) -> Path:
    """The folder of programs, or a copy of it when that account can't reach it (an environment below /root)."""
    try:
        answer = subprocess.run(
            [binaries.folder / "initdb", "--version"],
            cwd="/",
            capture_output=True,
            check=False,
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
        )
        if answer.returncode == 0:
            return binaries.folder
    except PermissionError:
        pass
    # Programs find their libraries by paths relative to themselves: what is copied keeps its shape.
    package = binaries.package
    if package is not None:
        top, parts = package.parent, [package, package.with_name(f"{package.name}.libs")]
    else:
        top = binaries.folder.parent
        parts = [top / name for name in ("bin", "lib", "share")]
    for part in parts:
        if part.is_dir():
            shutil.copytree(part, copy / part.name, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.stat().st_mode & 0o100 else 0o044))
    return copy / binaries.folder.relative_to(top)
