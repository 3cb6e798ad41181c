"""Finding an application's registry by its name, `module:registry`, and saying what is wrong when it isn't there."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.failures import describe_error
from sa_jobqueue.names import hint
from sa_jobqueue.registry import Registry

if TYPE_CHECKING:
    from types import ModuleType


class RegistryNotFoundError(ConfigurationError):
    """The module or the registry in it can't be had; the message says which and what is there instead."""


def load_registry(target: str) -> Registry:
    """The registry that `module:name` names; the name may be dotted. Imports the module.

    Raises RegistryNotFoundError when there is no such module or registry, when importing it fails, and when the registry
    has no handlers.
    """
    module_name, _, name = target.partition(":")
    if not module_name or module_name.startswith(".") or module_name.endswith(".py") or "/" in module_name:
        raise RegistryNotFoundError(f"{target!r}: expected module:registry, as in myapp.jobs:jobs")
    module = _import(module_name)
    if not name:
        raise RegistryNotFoundError(f"{target!r} names no registry{_there(module)}")
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = hint(name, _registries(module))
            raise RegistryNotFoundError(f"{module_name} has no {name!r}{near or _there(module)}")
        found = getattr(found, part)
    if not isinstance(found, Registry):
        raise RegistryNotFoundError(f"{target} is a {type(found).__name__}, not a Registry{_there(module)}")
    if not found.handlers:
        raise RegistryNotFoundError(
            f"{target} has no handlers: import the modules that register them in {module_name}"
        )
    return found


def _import(name: str) -> ModuleType:
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only when the module itself, or a package above it, is what is missing; not something that it imports.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise RegistryNotFoundError(f"there is no module {name!r}{_near_modules(error.name)}") from error
        raise RegistryNotFoundError(_failed(name, error)) from error
    except (Exception, SystemExit) as error:
        raise RegistryNotFoundError(_failed(name, error)) from error


def _failed(name: str, error: BaseException) -> str:
    return f"importing {name} failed\n{describe_error(error)}"


def _near_modules(missing: str) -> str:
    package, _, last = missing.rpartition(".")
    if package:
        path = getattr(importlib.import_module(package), "__path__", ())
        known = [f"{package}.{module.name}" for module in pkgutil.iter_modules(path)]
        return hint(f"{package}.{last}", known) or f" in {', '.join(path) or package}"
    known = [module.name for module in pkgutil.iter_modules(_own_folders())]
    return (
        f" in {Path.cwd()}, nor is it installed"
        f"{hint(last, known) or ': start it in the folder that holds the application, or set PYTHONPATH'}"
    )


def _own_folders() -> list[str]:
    """Where modules of the user's may lie: all but the standard library and what was installed."""
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    return [
        folder
        for folder in sys.path
        if not folder.startswith(tuple(libraries))
        and not {"site-packages", "dist-packages"} & set(Path(folder).parts)
    ]


def _registries(module: ModuleType) -> list[str]:
    return sorted(name for name, value in vars(module).items() if isinstance(value, Registry))


def _there(module: ModuleType) -> str:
    names = _registries(module)
    if not names:
        return f": there is no Registry in {module.__name__}, make one with jobs = Registry()"
    return f": write {' or '.join(f'{module.__name__}:{name}' for name in names)}"
