"""What all steps of the story share, and what one step leaves to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine

from examples.documents.demo.leftovers import Leftovers
from examples.documents.demo.runner import CONCURRENCY, RunnerProcess
from examples.documents.demo.terminal import Terminal
from examples.documents.service import OUTAGE_VARIABLE, SECONDS_VARIABLE

#: All calls of the model together take one runner about this long, in seconds, however many documents there are.
WORK_SECONDS = 4.0
LONGEST_CALL = 1.0
#: The model service is out of order for one document of so many.
OUTAGE_EVERY = 10


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The job of each document, by the document's id, and the one document that was uploaded in the wrong form."""

    jobs: Mapping[int, int]
    mistaken: int

    @property
    def outage(self) -> tuple[int, ...]:
        """Documents for which the model service answers 503 when it is asked for the first time."""
        return tuple(document for document in self.jobs if document != self.mistaken)[::OUTAGE_EVERY]

    @property
    def call_seconds(self) -> float:
        return min(LONGEST_CALL, WORK_SECONDS * CONCURRENCY / len(self.jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The database, the terminal, and how runners are started here."""

    engine: Engine
    terminal: Terminal
    environment: Mapping[str, str]
    leftovers: Leftovers

    def runner(self, name: str, uploaded: Uploaded) -> RunnerProcess:
        """A runner that is being started, in an environment where the model service is slow and has an outage."""
        rehearsal = {
            SECONDS_VARIABLE: f"{uploaded.call_seconds:.3f}",
            OUTAGE_VARIABLE: ",".join(map(str, uploaded.outage)),
        }
        return RunnerProcess(name, environment={**self.environment, **rehearsal}, leftovers=self.leftovers)
