"""`python -m examples.walkthrough NAME`, from the repository root. `python3 examples NAME` gets there from a bare machine."""

from __future__ import annotations

import argparse
import sys
import time

from examples.documents.demo.leftovers import Leftovers
from examples.documents.demo.place import private_place
from examples.documents.demo.trouble import DemoError
from examples.walkthrough import fastapi_app, flask_app, script
from examples.walkthrough.stage import Stage

STORIES = {"fastapi": fastapi_app, "flask": flask_app, "script": script}


def main(arguments: list[str]) -> int:
    """Tell one of the stories; the exit code is 0 when all that was checked holds."""
    options = argparse.ArgumentParser(prog="python -m examples.walkthrough", description=__doc__)
    options.add_argument("name", choices=STORIES)
    name: str = options.parse_args(arguments).name
    began = time.monotonic()
    try:
        with private_place(name) as place, Leftovers() as leftovers:
            stage = Stage(place, leftovers)
            stage.say(f"{STORIES[name].FOLDER} on {place.description}")
            try:
                stage.migrate(STORIES[name].FOLDER)
                STORIES[name].tell(stage)
            finally:
                stage.close()
    except DemoError as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"Checked, in {time.monotonic() - began:.0f} s. Read {STORIES[name].READ}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
