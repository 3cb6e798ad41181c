"""`ref()`: the key of a row that is not written yet, in a payload. Resolving within a flush is the unit of work's."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import inspect
from sqlalchemy.orm import InstanceState

from sa_jobqueue.names import hint
from sa_jobqueue.payloads import Ref


def ref(obj: object, attribute: str = "id") -> Any:
    """Stands in a payload for a column of `obj`, a row that is pending in the same session.

    It is filled in during the flush that writes `obj`; a UUID becomes its text. For an object that is stored already
    this is the plain value. Raises TypeError for what is not mapped and ValueError for what is no column of it.
    """
    state = inspect(obj, raiseerr=False)
    if not isinstance(state, InstanceState):
        raise TypeError(f"ref(): expected an object of a mapped class, got {type(obj).__qualname__}")
    known = state.mapper.column_attrs.keys()
    if attribute not in known:
        raise ValueError(
            f"ref(): {type(obj).__qualname__} has no column {attribute!r}{hint(attribute, known)}"
        )
    placeholder = Ref(obj, attribute)
    return placeholder if state.key is None else stored_value(placeholder, state)


def stored_value(placeholder: Ref, state: InstanceState[Any]) -> Any:
    """The value for an object that has an identity: for a primary key without SQL, also when it is expired."""
    mapper = state.mapper
    for column, value in zip(mapper.primary_key, state.identity or (), strict=False):
        if mapper.get_property_by_column(column).key == placeholder.attribute:
            return json_key(value)
    return json_key(getattr(placeholder.target, placeholder.attribute))


def json_key(value: Any) -> Any:
    """A key as a payload can hold it."""
    return str(value) if isinstance(value, UUID) else value
