"""What a callable that an application hands over can be asked for, before it is ever called."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine, also where it is an object or a partial."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def takes(function: Any, *arguments: Any) -> bool:
    """Whether it can be called with these arguments. One that doesn't tell its parameters may well take them."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        return True
    except TypeError:
        return False
    return True
