"""Where documents come from: a folder of texts, or the documentation that this Python has on its disk."""

from __future__ import annotations

import ast
import importlib.util
import io
import py_compile
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

MEDIA_TYPES = {
    ".htm": "text/html",
    ".html": "text/html",
    ".md": "text/markdown",
    ".rst": "text/x-rst",
    ".txt": "text/plain",
}
#: Shorter texts say too little to be found by.
SHORTEST = 200
#: A module of the standard library that plays the document which somebody uploaded in the wrong form.
MISTAKEN_MODULE = "optparse"


@dataclass(frozen=True, slots=True)
class Source:
    """One document before it is stored."""

    title: str
    origin: str
    media_type: str
    content: bytes = field(repr=False)


def folder(path: Path) -> Iterator[Source]:
    """Every text, Markdown, reStructuredText and HTML file below the folder that isn't empty, in the order of paths."""
    for file in sorted(path.rglob("*")):
        media_type = MEDIA_TYPES.get(file.suffix.lower())
        if media_type and file.is_file() and (content := file.read_bytes()):
            yield Source(file.stem, str(file.relative_to(path)), media_type, content)


def installed() -> Iterator[Source]:
    """The descriptions of the installed packages, then the documentation of the modules of the standard library."""
    yield from _packages()
    yield from _standard_library()


def mistaken() -> tuple[Source, Source]:
    """A document uploaded in the wrong form, compiled to byte code, and in the right one: its text."""
    spec = importlib.util.find_spec(MISTAKEN_MODULE)
    if spec is None or spec.origin is None:
        raise LookupError(f"this Python has no module {MISTAKEN_MODULE}")
    text = Path(spec.origin)
    with tempfile.TemporaryDirectory() as place:
        compiled = Path(place, f"{text.stem}.pyc")
        py_compile.compile(str(text), cfile=str(compiled), doraise=True)
        wrong = compiled.read_bytes()
    return (
        Source(f"{text.stem}.pyc", "standard library, compiled", "text/plain", wrong),
        Source(text.name, "standard library, source", "text/plain", text.read_bytes()),
    )


def _packages() -> Iterator[Source]:
    packages = {str(package.metadata["Name"]).lower(): package for package in metadata.distributions()}
    for name in sorted(packages.keys() - {"sa-jobqueue"}):
        fields = packages[name].metadata.json
        text = str(fields.get("description", ""))
        media_type = str(fields.get("description_content_type", "text/x-rst")).partition(";")[0]
        if len(text) >= SHORTEST:
            yield Source(name, f"package, version {packages[name].version}", media_type, text.encode())


def _standard_library() -> Iterator[Source]:
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name == MISTAKEN_MODULE:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            continue
        text = _docstring(Path(spec.origin).read_bytes())
        if len(text) >= SHORTEST:
            yield Source(name, "standard library", "text/plain", text.encode())


def _docstring(code: bytes) -> str:
    """The documentation at the head of a module; reading its first words is enough, and imports nothing."""
    skipped = {tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE}
    for token in tokenize.tokenize(io.BytesIO(code).readline):
        if token.type not in skipped:
            return str(ast.literal_eval(token.string)) if token.type == tokenize.STRING else ""
    return ""
