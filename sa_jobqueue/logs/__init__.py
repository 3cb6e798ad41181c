"""The logging subscriber and the formats of the command line's log."""

from sa_jobqueue.logs.formats import ConsoleFormatter, JsonFormatter, set_up_logging
from sa_jobqueue.logs.lines import log_event, logger

__all__ = ["ConsoleFormatter", "JsonFormatter", "log_event", "logger", "set_up_logging"]
