"""Names and the hints for misspelt ones."""

from __future__ import annotations

from sa_jobqueue.names import check_name, hint, nearest


def test_a_good_name_passes_unchanged() -> None:
    """Letters of every script, dots and spaces inside are fine, up to 200 characters."""
    for name in ("document.embed", "größe", "文書", "two words", "n" * 200):
        assert check_name("kind", name) == name


def test_a_hint_names_the_nearest_or_nothing() -> None:
    """Good guesses help, bad ones mislead."""
    assert nearest("defualt", ["default", "ai"]) == ("default",)
    assert hint("defualt", ["default", "ai"]) == ", did you mean 'default'?"
    assert hint("zzz", ["default", "ai"]) == ""
    assert nearest("a", []) == ()
