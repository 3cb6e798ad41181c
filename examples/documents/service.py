"""What a model behind a network does besides answering: it takes time, and sometimes it is not there.

Both are switched on from outside, for rehearsals; without the variables nothing here does anything. An application
with a real model service has no such file: its client takes the time and raises the error.
"""

from __future__ import annotations

import os
import time

#: Seconds that each call takes.
SECONDS_VARIABLE = "DOCUMENTS_MODEL_SECONDS"
#: Ids of documents, as "3,14,15", for which the service answers 503 the first time it is asked.
OUTAGE_VARIABLE = "DOCUMENTS_MODEL_503"


class ModelUnavailableError(Exception):
    """The model service can't answer now; later it may."""


def rehearse(document_id: int, *, attempt: int) -> None:
    """Take the time of a call; raises ModelUnavailableError for a first attempt during the outage."""
    time.sleep(float(os.environ.get(SECONDS_VARIABLE, "0")))
    if attempt == 1 and str(document_id) in os.environ.get(OUTAGE_VARIABLE, "").split(","):
        raise ModelUnavailableError("the model service answered 503 Service Unavailable")
