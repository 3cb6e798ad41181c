"""The environments in which the examples and the tests run, made on a bare machine.

Standard library only. Written so that Python 3.8 can still read it and say that it is too old.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, NoReturn, Sequence  # noqa: UP035 - readable by old Pythons

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")


class BootstrapError(Exception):
    """The environment can't be made; the message is for the person who started the command."""


def ensure_environment(
    extras: Sequence[str], *, name: str = ".venv", constraints: Sequence[str] = (), root: Path = ROOT
) -> Path:
    """Make or complete the environment `name` at the root of the repository; return its Python.

    The project is installed editable with the extras, once: a stamp says what is in. An environment that somebody
    else made is completed; one of ours that is half made, or for another Python, is made anew.
    """
    folder = root / name
    wanted = _wanted(root, extras, constraints)
    if _satisfied(folder, wanted):
        return _python_of(folder)
    if not os.access(str(folder if folder.exists() else root), os.W_OK):
        raise BootstrapError(
            f"{root} is not writable for the user {getpass.getuser()}, so that {name} can't be made there.\n"
            f"Copy the repository to a folder of yours and start again there: cp -r {root} ~/sa_jobqueue"
        )
    with _lock(root / f"{name}.lock", name):
        if not _satisfied(folder, wanted):
            _install(root, folder, wanted)
    return _python_of(folder)


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """End the process with the message of a BootstrapError, and without a traceback at Ctrl-C."""
    try:
        yield
    except BootstrapError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def require_python(argv: Sequence[str]) -> None:
    """Go on in a newer Python of this machine when this one is too old; end with a message when there is none."""
    if sys.version_info >= OLDEST_PYTHON:
        return
    needed = ".".join(str(number) for number in OLDEST_PYTHON)
    for command in NEWER_PYTHONS:
        path = shutil.which(command)
        # Version managers put names on PATH that only print an error: ask.
        if path and subprocess.call([path, "-c", "import ssl, venv"], stderr=subprocess.DEVNULL) == 0:
            print(f"Python {sys.version.split()[0]} is too old, going on with {path}", flush=True)
            replace_process([path, *argv])
    raise SystemExit(
        f"Python {needed} or newer is needed; this is {sys.version.split()[0]} ({sys.executable}),"
        f" and none of {', '.join(NEWER_PYTHONS)} is on PATH. Install one and start again with it."
    )


def runs_inside(python: Path) -> bool:
    """Whether this process already runs in the environment of that Python."""
    return Path(sys.prefix).resolve() == python.parent.parent.resolve()


def replace_process(command: Sequence[str], folder: Path | None = None) -> NoReturn:
    """Become another program. Signals and exit code are then its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    if folder is not None:
        os.chdir(folder)
    os.environ.pop("PYTHONHOME", None)  # names another standard library than the environment's
    if os.name == "nt":  # there, exec returns to the shell at once
        raise SystemExit(subprocess.call(list(command)))
    os.execv(command[0], list(command))


def _wanted(root: Path, extras: Sequence[str], constraints: Sequence[str]) -> dict:
    """`place` decides whether an environment can be kept, `project` whether something is to be installed in it."""
    project = (root / "pyproject.toml").read_bytes()
    return {
        "place": [str(root), "{}.{}".format(*sys.version_info), *constraints],
        "project": hashlib.sha256(project).hexdigest(),
        "extras": sorted(_expand(project.decode(), extras)),
        "constraints": list(constraints),
    }


def _expand(project: str, extras: Sequence[str]) -> set[str]:
    """The extras with those that they contain, as in `test = ["sa-jobqueue[binary,embedded]", ...]`."""
    import tomllib  # since Python 3.11, which is required by now

    tables = tomllib.loads(project)["project"]
    known = tables.get("optional-dependencies", {})
    found: set[str] = set()
    todo = list(extras)
    while todo:
        extra = todo.pop()
        if extra not in found:
            found.add(extra)
            inner = re.findall(re.escape(tables["name"]) + r"\[([^]]*)\]", " ".join(known[extra]))
            todo += [word.strip() for group in inner for word in group.split(",")]
    return found


def _stamp(folder: Path) -> dict | None:
    """What is installed: None when we never worked here, nothing but `ours` when an installation broke off."""
    try:
        return json.loads((folder / "sa-jobqueue.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}


def _satisfied(folder: Path, wanted: dict) -> bool:
    stamp = _stamp(folder) or {}
    same = all(stamp.get(word) == wanted[word] for word in ("place", "project")) and set(
        wanted["extras"]
    ) <= set(stamp.get("extras", ()))
    return same and _python_of(folder).exists()


def _install(root: Path, folder: Path, wanted: dict) -> None:
    stamp = _stamp(folder)
    ours = not folder.exists() if stamp is None else stamp.get("ours", True)
    same_place = bool(stamp) and stamp.get("place") == wanted["place"] and _python_of(folder).exists()
    keep = folder.exists() and (same_place or not ours)
    extras = sorted({*wanted["extras"], *(stamp["extras"] if same_place else ())})
    began = time.monotonic()
    verb = "completing" if keep else "creating"
    print(f"{verb} {folder.name} (Python {sys.version.split()[0]}) ... ", end="", flush=True)
    try:
        if not keep:
            shutil.rmtree(str(folder), ignore_errors=True)
            folder.mkdir()
        if ours:
            _write_stamp(folder, {"ours": True})
        if not keep:
            _create(folder)
        _run_pip(root, folder, [f"{root}[{','.join(extras)}]", *wanted["constraints"]])
    except KeyboardInterrupt:
        print("stopped; the next start does it anew", flush=True)
        raise
    except BaseException:
        print("failed", flush=True)
        raise
    _write_stamp(folder, {**wanted, "extras": extras, "ours": ours})
    print(f"done in {time.monotonic() - began:.0f} s", flush=True)


def _create(folder: Path) -> None:
    # When the environment's own Python renews it, the one below it has to do the work.
    base = getattr(sys, "_base_executable", None) or sys.executable
    answer = subprocess.run(
        [base, "-m", "venv", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(),
    )
    if answer.returncode:
        raise BootstrapError(
            f"{base} -m venv {folder} failed:\n{_end_of(answer.stdout)}\n"
            "Usually Python's modules venv and ensurepip are missing: on Debian and Ubuntu,"
            f" apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        )


def _run_pip(root: Path, folder: Path, requirements: Sequence[str]) -> None:
    log = folder / "install.log"
    command = [str(_python_of(folder)), "-m", "pip", "install", "--editable", *requirements]
    environment = {
        **_environment(),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_USER": "0",
        "PIP_NO_INPUT": "1",
    }
    with log.open("wb") as output:
        code = subprocess.call(command, stdout=output, stderr=output, cwd=str(root), env=environment)
    if code:
        raise BootstrapError(pip_advice(log.read_text(encoding="utf-8", errors="replace"), log))


def _environment() -> dict:
    """For venv and pip: the standard library is their own, and their warnings are nobody's errors."""
    environment = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONWARNINGS"):
        environment.pop(name, None)
    return environment


def pip_advice(output: str, log: Path) -> str:
    """The last lines of pip's output and what to do about them."""
    if re.search(r"No space left on device", output):
        cure = "The disk is full: free some space and start again."
    elif "No module named pip" in output:
        cure = f"That environment has no pip. Move it away and start again: mv {log.parent} {log.parent}.old"
    elif re.search(
        r"resol|NewConnection|Max retries|timed out|unreachable|No matching distribution|SSLError", output
    ):
        cure = (
            "Usually pip can't reach a package index: check the network, the proxy (HTTPS_PROXY) and `pip config list`."
            " Without a network: PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder of wheels>."
        )
    elif "Permission denied" in output:
        cure = f"Something is not writable for the user {getpass.getuser()}: see the path above."
    else:
        cure = "Start again when the cause is gone."
    return f"pip could not install the project:\n{_end_of(output)}\n{cure}\nThe whole output is in {log}"


def _end_of(output: str) -> str:
    return "\n".join("  " + line for line in output.strip().splitlines()[-12:])


def _write_stamp(folder: Path, content: dict) -> None:
    draft = folder / "sa-jobqueue.json.new"
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(folder / "sa-jobqueue.json")


def _python_of(folder: Path) -> Path:
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


@contextmanager
def _lock(path: Path, name: str) -> Iterator[None]:
    """One process at a time; the lock ends with the process that holds it."""
    with path.open("a") as handle:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another process that makes {name}", flush=True)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
