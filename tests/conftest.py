"""Where the fixtures live:

support/databases.py   server, template_database, database_url, empty_database_url, engine
entry/databases.py     application_url: with the tables of an application
support/leaks.py       after every test: no thread left over
support/needs.py       @pytest.mark.needs("docker"): parts that a machine may lack
support/folders.py      short_folder: one whose path fits a socket, and that other users can reach
support/proxy.py        proxy: what a network may lose between a client and the database
support/memory.py      temporary files in memory, where there is room
support/header.py      the versions in pytest's header
support/waiting.py     wait_until(), for conditions that another thread or process brings about
"""

from __future__ import annotations

pytest_plugins = [
    "tests.support.databases",
    "tests.support.folders",
    "tests.support.header",
    "tests.support.leaks",
    "tests.support.memory",
    "tests.support.needs",
    "tests.support.proxy",
    "tests.entry.databases",  # after those that it imports
]
