"""From uploaded bytes to plain text, and from text to chunks; standard library only."""

from __future__ import annotations

import codecs
import html
import re
from html.parser import HTMLParser

CHUNK_WORDS, OVERLAP_WORDS = 160, 30
#: A stray control character is found in real texts; more of them than this are no text.
CONTROL_SHARE = 0.01

_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MARKDOWN = (
    (re.compile(r"^(```|~~~).*$", re.MULTILINE), ""),
    (re.compile(r"<!--.*?-->|</?[a-z][^<>]*>", re.DOTALL | re.IGNORECASE), " "),
    (re.compile(r"!\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])"), r"\1"),
    (re.compile(r"^\[[^\]]+\]:\s.*$", re.MULTILINE), ""),
    (re.compile(r"^\s{0,3}(#{1,6}|>|[-*+]|\d+\.)\s+", re.MULTILINE), ""),
    (re.compile(r"[*_`]{1,3}(?=\S)|(?<=\S)[*_`]{1,3}"), ""),
)
_RST = (
    (re.compile(r"^\s*\.\. .*$|^\s*:\w[\w-]*:( .*)?$", re.MULTILINE), ""),
    (re.compile(r"^([=\-~^\"'#*+.`])\1{2,}\s*$", re.MULTILINE), ""),
    (re.compile(r":[\w:]+:`([^`<]*)(<[^`]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]*?)\s*(<[^`]*>)?`_{0,2}"), r"\1"),
)


class MalformedDocumentError(Exception):
    """No text can be had from these bytes, today or tomorrow."""


def extract(content: bytes, media_type: str) -> str:
    """The text of a document, white space made single. Raises MalformedDocumentError."""
    text = _decode(content)
    match media_type:
        case "text/html":
            text = _without_tags(text)
        case "text/markdown":
            text = html.unescape(_substitute(_MARKDOWN, text))
        case "text/x-rst":
            text = _substitute(_RST, text)
    words = text.split()
    if not words:
        raise MalformedDocumentError(f"no words in {len(content)} bytes of {media_type}")
    return " ".join(words)


def chunks(text: str) -> list[str]:
    """Pieces of at most CHUNK_WORDS words, each beginning with the end of the one before."""
    words = text.split()
    step = CHUNK_WORDS - OVERLAP_WORDS
    starts = range(0, max(len(words) - OVERLAP_WORDS, 1), step)
    return [" ".join(words[start : start + CHUNK_WORDS]) for start in starts]


def _decode(content: bytes) -> str:
    boms = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    for encoding in ("utf-16",) if content.startswith(boms) else ("utf-8-sig", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        # Bytes of anything can pass for an old encoding of text; what hardly any text has in it gives them away.
        controls = _CONTROLS.findall(text)
        if "\0" not in controls and len(controls) <= len(text) * CONTROL_SHARE:
            return _CONTROLS.sub(" ", text)
    raise MalformedDocumentError(f"not text: {len(content)} bytes that begin with {content[:8]!r}")


def _substitute(rules: tuple[tuple[re.Pattern[str], str], ...], text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _without_tags(text: str) -> str:
    parser = _Text()
    parser.feed(text)
    parser.close()
    return "".join(parser.pieces)


class _Text(HTMLParser):
    """Collects what a reader of the page would see."""

    _HIDDEN = frozenset({"script", "style", "template"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._hidden += tag in self._HIDDEN
        self.pieces.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._HIDDEN and self._hidden:
            self._hidden -= 1
        self.pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)
