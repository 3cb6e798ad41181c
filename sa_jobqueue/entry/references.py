"""`ref()`: the key of a row that is not written yet, in a payload. Resolving within a flush is the unit of work's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import TypeDecorator, inspect
from sqlalchemy.orm import InstanceState

from sa_jobqueue.names import hint
from sa_jobqueue.payloads import Ref


def ref(obj: object, attribute: str = "id") -> Any:
    """Stands in a payload for a column of `obj`, a row that is pending in the same session.

    It is filled in during the flush that writes `obj`, in the form of its field; without a typed field a UUID becomes
    its text. For an object that is stored already this is the value, where JSON has its type. Raises TypeError for what
    is not mapped and ValueError for what is no column of it.
    """
    state = inspect(obj, raiseerr=False)
    if not isinstance(state, InstanceState):
        raise TypeError(f"ref(): expected an object of a mapped class, got {type(obj).__qualname__}")
    known = state.mapper.column_attrs.keys()
    if attribute not in known:
        raise ValueError(
            f"ref(): {type(obj).__qualname__} has no column {attribute!r}{hint(attribute, known)}"
        )
    placeholder = Ref(obj, attribute, column_type=_column_type(state, attribute))
    if state.key is None:
        return placeholder
    value = stored_value(placeholder, state)
    return value if isinstance(value, str | int | float | None) else replace(placeholder, value=value)


def stored_value(placeholder: Ref, state: InstanceState[Any]) -> Any:
    """The value for an object that has an identity: for a primary key without SQL, also when it is expired."""
    mapper = state.mapper
    for column, value in zip(mapper.primary_key, state.identity or (), strict=False):
        if mapper.get_property_by_column(column).key == placeholder.attribute:
            return value
    return getattr(placeholder.target, placeholder.attribute)


def _column_type(state: InstanceState[Any], attribute: str) -> type | None:
    """The Python type of the column; None where an application's own type decides it, or nobody tells."""
    column = state.mapper.column_attrs[attribute].columns[0]
    if isinstance(column.type, TypeDecorator):
        return None
    try:
        return column.type.python_type
    except NotImplementedError:
        return None
