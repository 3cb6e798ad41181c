"""The steps of `python3 tests`: each is one command; all of them run, and the table at the end tells which failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

#: What makes no statement of ours: on another SQLAlchemy or PostgreSQL it is the same test again. Modules and tests
#: of other folders of which this is true are marked `once`.
WITHOUT_SQL = ("tests/simulation", "tests/server", "tests/codecs")
#: Half of the time, most of it spent waiting for leases, processes and servers: a run of its own beside all others.
PATIENT = "tests/runner"
#: The proof of the protocol: a few long tests, each of them once.
PROOF = ("tests/chaos", "tests/crash_points", "tests/model")
CLOSING = re.compile(r"(passed|failed|skipped|deselected|collected|errors?|no tests ran).* in [\d.]+s")


@dataclass(frozen=True, slots=True)
class Step:
    """One command. A quiet one shows its output only when it fails."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """How a step ended; `closing` is pytest's own last line."""

    step: Step
    seconds: float
    passed: bool
    closing: str
    output: str


def gates(python: Path) -> list[Step]:
    """What holds before any test runs: format, lint, types, completeness of the public types, layers."""
    tools = python.parent
    # pyright asks the `python` on PATH where packages lie; with --verifytypes it listens to nothing else.
    path = {"PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    pyright = str(tools / "pyright")
    return [
        Step("ruff format", (str(tools / "ruff"), "format", "--check", ".")),
        Step("ruff check", (str(tools / "ruff"), "check", ".")),
        Step("mypy --strict", (str(tools / "mypy"),)),
        Step("pyright", (pyright,), path),
        Step("pyright --verifytypes", (pyright, "--verifytypes", "sa_jobqueue", "--ignoreexternal"), path),
        Step("import layers", (str(tools / "lint-imports"),)),
    ]


def pytest(python: Path, arguments: Sequence[str] = ()) -> Step:
    """The tests on the newest SQLAlchemy, on the PostgreSQL that is found first."""
    return Step("pytest", _pytest(python, arguments), _compiled(python), quiet=False)


def all_tests(python: Path) -> list[Step]:
    """The same with nothing chosen: in three runs."""
    return _runs(python, {"runners": (PATIENT,), "protocol": PROOF})


def oldest_sqlalchemy(python: Path) -> list[Step]:
    """All tests that have to do with SQL on SQLAlchemy 2.0, and on the PostgreSQL of the package, usually a newer one."""
    left_out = [*(f"--ignore={part}" for part in WITHOUT_SQL), "-m", "not once"]
    return [
        replace(
            step,
            name=f"{step.name}, SQLAlchemy 2.0",
            command=(*step.command, *left_out),
            environment={**step.environment, "SA_JOBQUEUE_TEST_POSTGRES": "wheel"},
        )
        for step in _runs(python, {"runners": (PATIENT,)})
    ]


def run(steps: Sequence[Step]) -> int:
    """Run all steps, print the table and, last, what pytest said at its end. 0 when all passed.

    Quiet steps go one after another. The others mostly wait for servers and processes, so they go side by side, and
    beside the quiet ones: the first is shown as it runs, what the others print comes when they are through.
    """
    quiet = [step for step in steps if step.quiet]
    loud = [step for step in steps if not step.quiet]
    with ThreadPoolExecutor(max_workers=1 + len(loud)) as side_by_side:
        in_turn = side_by_side.submit(lambda: [_run(step, show=False) for step in quiet])
        running = [side_by_side.submit(_run, step, show=step is loud[0]) for step in loud]
        results = in_turn.result()
        for place, future in enumerate(running):
            result = future.result()
            if place:
                print(f"--- {result.step.name}\n{result.output}", flush=True)
            results.append(result)
    width = max(len(step.name) for step in steps)
    print(f"\n{'step':<{width}}  seconds  result")
    for result in results:
        print(f"{result.step.name:<{width}}  {result.seconds:7.1f}  {'ok' if result.passed else 'FAILED'}")
    for result in results:
        if not result.step.quiet:
            print(result.closing)
    sys.stdout.flush()
    return 0 if all(result.passed for result in results) else 1


def _runs(python: Path, apart: Mapping[str, Sequence[str]]) -> list[Step]:
    """All tests: some folders in runs of their own, by name, and the rest in one."""
    rest = [f"--ignore={part}" for parts in apart.values() for part in parts]
    return [
        replace(pytest(python, rest), name="pytest"),
        *(replace(pytest(python, parts), name=f"pytest, {name}") for name, parts in apart.items()),
    ]


def _pytest(python: Path, arguments: Sequence[str]) -> tuple[str, ...]:
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    return (str(python), "-m", "pytest", *colour, *arguments)


def _compiled(python: Path) -> dict[str, str]:
    """Tests start hundreds of processes: each module is compiled once, into the environment and not into the sources."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(python.parent.parent / "pycache")}


def _run(step: Step, *, show: bool) -> Result:
    if show or step.quiet:
        print(f"--- {step.name}", flush=True)
    began = time.monotonic()
    lines: list[str] = []
    process = subprocess.Popen(
        step.command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **step.environment},
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            lines.append(line)
            if show:
                print(line, end="", flush=True)
    passed = process.returncode == 0
    output = "".join(lines)
    if step.quiet and not passed:
        print(output, end="", flush=True)
    closing = next(
        (line.rstrip() for line in reversed(lines) if CLOSING.search(line)), f"{step.name}: broke off"
    )
    return Result(step, time.monotonic() - began, passed, closing, output)
