"""Versions of payloads: jobs that wait were enqueued by older code, and are brought up to what the handler takes now.

An upcaster is the application's function from the payload of one version to that of the next. The row of the job stays
as it was enqueued, so that each attempt begins with it anew.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sa_jobqueue.callables import is_async, takes
from sa_jobqueue.errors import PayloadError
from sa_jobqueue.outcomes import Settle
from sa_jobqueue.payloads import LARGEST_PAYLOAD_BYTES, fix
from sa_jobqueue.signature import function_name

#: By the version that each takes; what it returns is the next.
Upcasters = Mapping[int, Callable[[Any], Any]]

NO_UPCASTERS: Upcasters = MappingProxyType({})


def read_upcasters(where: str, upcasters: Any, payload_version: int) -> Upcasters:
    """A copy of what a handler is registered with, nobody's to change.

    Raises TypeError or ValueError, beginning with `where`, where they don't lead, one after another, up to
    `payload_version`, and for what is no plain function of one argument.
    """
    what = f"{where}: upcasters"
    if not isinstance(upcasters, Mapping):
        raise TypeError(
            f"{what}: expected a dict of functions by version, got {type(upcasters).__qualname__}"
        )
    for version, upcaster in upcasters.items():
        if isinstance(version, bool) or not isinstance(version, int):
            raise TypeError(f"{what}: expected versions (int) as keys, got {version!r}")
        if not 1 <= version < payload_version:
            raise ValueError(
                f"{what}: {version} is no version before payload_version={payload_version}: each function takes the "
                "payload of its version and returns that of the next"
            )
        _check_function(f"{what}[{version}]", upcaster)
    if upcasters:
        missing = next((n for n in range(min(upcasters), payload_version) if n not in upcasters), None)
        if missing is not None:
            raise ValueError(
                f"{what}: {missing} is missing, without which no older payload gets to payload_version={payload_version}"
            )
    return MappingProxyType({version: upcasters[version] for version in sorted(upcasters)})


def upcast(kind: str, payload: Any, version: int, payload_version: int, upcasters: Upcasters) -> Any:
    """The payload of a job, as of `payload_version`: itself, or what the upcasters make of a copy.

    Raises PayloadError, naming kind and version, for a version that nobody can bring there, and where an upcaster fails:
    with the type of its error and its traceback, never with its text, which may quote a value. What it says by Settle passes.
    """
    if version == payload_version:
        return payload
    if version > payload_version:
        raise PayloadError(
            f"kind {kind!r}: the payload has version {version}, and the handler takes no newer one than "
            f"payload_version={payload_version}: run the job with newer code"
        )
    if version not in upcasters:
        oldest = min(upcasters, default=payload_version)
        raise PayloadError(
            f"kind {kind!r}: the payload has version {version}, and the handler takes no older one than {oldest}: "
            f"give it upcasters={{{version}: ...}} to get to payload_version={payload_version}"
        )
    try:
        value = copy.deepcopy(payload)
    except RecursionError:
        raise PayloadError(f"kind {kind!r}: the payload is nested too deep") from None
    for step in range(version, payload_version):
        value = _next_version(kind, step, upcasters[step], value)
    return value


def _next_version(kind: str, version: int, upcaster: Callable[[Any], Any], payload: Any) -> Any:
    who = f"kind {kind!r}: the upcaster of payload version {version}, {function_name(upcaster)},"
    was_null = payload is None
    try:
        returned = upcaster(payload)
    except Settle:
        raise
    except (Exception, SystemExit) as error:
        failure = PayloadError(f"{who} raised {type(error).__qualname__}")
        raise failure.with_traceback(error.__traceback__) from None
    if returned is None and not was_null:
        raise PayloadError(f"{who} returned None: return the payload, also where it is changed in place")
    try:
        fixed = fix(returned, limit=LARGEST_PAYLOAD_BYTES)
    except (TypeError, ValueError) as error:
        raise PayloadError(f"{who} returned what can't be a payload: {error}") from None
    if fixed.refs:
        raise PayloadError(f"{who} returned a ref(), which is for enqueue() alone: return the key itself")
    return fixed.value


def _check_function(what: str, upcaster: Any) -> None:
    if not takes(upcaster, None):
        raise TypeError(
            f"{what}: expected a function of one argument, the payload, got {function_name(upcaster)}"
        )
    if is_async(upcaster):
        raise TypeError(
            f"{what}: {function_name(upcaster)} is async: write it with def, it only changes a value"
        )
