"""`python3 examples ...`: the examples on a bare machine, in an environment and on a PostgreSQL of their own.

    python3 examples [FOLDER] ...    documents become embeddings, and a runner is killed on the way (examples/documents)
    python3 examples fastapi         an async application, with its runner inside and outside (examples/fastapi_app)
    python3 examples flask           an application with Flask-SQLAlchemy (examples/flask_app)
    python3 examples script          a script with plain SQLAlchemy (examples/script)

Standard library only, and readable by old Pythons: it runs before anything is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of this folder: nothing in it is meant to be imported by its bare name

from examples.documents.options import as_arguments, parser  # noqa: E402
from tests.bootstrap import (  # noqa: E402
    ensure_environment,
    replace_process,
    require_python,
    told_in_one_line,
)

#: What is no folder of documents. A folder of such a name is given as ./flask.
APPLICATIONS = ("fastapi", "flask", "script")


def main(arguments: list[str]) -> None:
    """Run a module of the examples from the repository root, with the arguments that are meant for it."""
    if arguments[:1] in [[name] for name in APPLICATIONS]:
        if arguments[1:]:
            parser().error(f"{arguments[0]} takes no arguments: {' '.join(arguments[1:])}")
        extras, module, words = ["examples"], "examples.walkthrough", arguments
    else:
        options = parser().parse_args(arguments)  # help and mistakes shall not wait for an installation
        extras, module = ["binary", "embedded", "asyncio"], "examples.documents"
        words = as_arguments(options)
    require_python([str(ROOT / "examples"), *arguments])
    with told_in_one_line():
        python = ensure_environment(extras)
    replace_process([str(python), "-m", module, *words], ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
