"""Database URLs become the one form that is used, and passwords stay where they are."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url

from sa_jobqueue.database import hide_passwords, normalise_url, shown_url
from sa_jobqueue.errors import ConfigurationError
from sa_jobqueue.runner import RunnerSettings


@pytest.mark.parametrize(
    "scheme",
    [
        "postgres",
        "postgresql",
        "postgresql+asyncpg",
        "postgresql+psycopg",
        "postgresql+psycopg2",
        "postgresql+psycopg_async",
        "postgresql+pg8000",
    ],
)
def test_every_postgresql_url_gets_the_one_driver(scheme: str) -> None:
    """What an application, a platform or a template has at hand works as it is."""
    url = normalise_url(f" {scheme}://user:p%40ss@db.example:5433/app?application_name=x\n")
    assert url.render_as_string(hide_password=False) == (
        "postgresql+psycopg://user:p%40ss@db.example:5433/app?application_name=x"
    )
    engine = create_engine(url)
    assert (engine.dialect.name, engine.dialect.driver) == ("postgresql", "psycopg")
    engine.dispose()


def test_a_url_object_is_taken_too() -> None:
    """An application's `engine.url` needs no rendering, which would lose the password."""
    url = normalise_url(make_url("postgresql+asyncpg://u:secret@h/d"))
    assert (url.drivername, url.password) == ("postgresql+psycopg", "secret")


@pytest.mark.parametrize(
    "place", ["u:PGPW-42@h/d", "h/d?password=PGPW-42", "u:other@h/d?user=u&password=PGPW-42"]
)
def test_a_password_is_hidden_wherever_it_stands(place: str) -> None:
    """libpq takes it from the query as well; reprs of URLs and engines show that."""
    url = normalise_url(f"postgresql://{place}")
    assert url.password == "PGPW-42"
    engine = create_engine(url)
    for shown in (repr(url), str(url), shown_url(url), repr(engine), f"{RunnerSettings(listen_url=url)}"):
        assert "PGPW-42" not in shown
    engine.dispose()


def test_options_of_asyncpg_are_translated_or_left_out() -> None:
    """A URL written for asyncpg doesn't fail on options that libpq doesn't know."""
    url = normalise_url(
        "postgresql+asyncpg://h/d?ssl=require&prepared_statement_cache_size=0&command_timeout=5&target_session_attrs=any"
    )
    assert dict(url.query) == {"sslmode": "require", "target_session_attrs": "any"}


@pytest.mark.parametrize("url", ["sqlite:///x.db", "mysql+pymysql://u:hunter2@h/d", "oracle://u:hunter2@h/d"])
def test_other_databases_are_refused(url: str) -> None:
    """The message names what was given and what to write, and never the password."""
    with pytest.raises(
        ConfigurationError, match=r"needs PostgreSQL, .* '(sqlite|mysql|oracle)': write it as"
    ) as caught:
        normalise_url(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("host=localhost password=hunter2", "can't be read"),
        ("postgresql://u:hunter2@h:port/d", "can't be read"),
        ("localhost/hunter2", "can't be read"),
        ("postgresql://u:p@hunter2@h/d", "more than one @: write each @ of user and password as %40"),
    ],
)
def test_what_is_no_url_is_refused_without_repeating_it(url: str, text: str) -> None:
    """Neither the message nor the chain of causes holds what may be a password."""
    with pytest.raises(ConfigurationError, match=text) as caught:
        normalise_url(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_shown_url_tells_where_and_no_more() -> None:
    """The query may hold a password as well."""
    url = normalise_url("postgresql://u:hunter2@h:5433/d?password=hunter2")
    assert shown_url(url) == "postgresql+psycopg://u:***@h:5433/d"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at postgresql://u:hunter2@h/d now", "at postgresql://u:***@h/d now"),
        ("amqp://u:hun:ter@2@h/d", "amqp://u:***@h/d"),
        ("postgresql://:hunter2@h/d", "postgresql://:***@h/d"),
        ("host=h password=hunter2 user=u", "host=h password=*** user=u"),
        ("password='hunter 2' user=u", "password=*** user=u"),
        ("?sslpassword=hunter2&x=1", "?sslpassword=***&x=1"),
        ("PASSWORD = hunter2", "PASSWORD = ***"),
        ("http://h:80/path and more", "http://h:80/path and more"),
        ("no secret here", "no secret here"),
        (
            "give --database-url postgresql://user:password@host/name",
            "give --database-url postgresql://user:password@host/name",
        ),
        ("postgresql://user:password@host.example/d", "postgresql://user:***@host.example/d"),
        ("postgresql://user:password@host/hunter2@h/d", "postgresql://user:***@h/d"),
    ],
)
def test_passwords_are_hidden_in_any_text(text: str, shown: str) -> None:
    """Messages of drivers and applications pass through here before they are shown."""
    assert hide_passwords(text) == shown
