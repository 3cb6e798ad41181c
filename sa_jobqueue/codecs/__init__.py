"""What a parameter's annotation says about a field of the payload: how its values become JSON, and come back equal.

`codec_for(annotation)` makes a `Codec` once, at registration; a call encodes with it and a run decodes. The forms are
stored and read by later releases, so they are part of what a release promises: a datetime, date, time or timedelta is
ISO 8601 text, a Decimal or UUID its text, bytes are base64, an Enum is its value, a set a sorted array, a record an object.

This is policy: no SQL, no session, no handler is known here, and a message never shows a value.
"""

from sa_jobqueue.codecs.annotations import UnsupportedAnnotationError, codec_for
from sa_jobqueue.codecs.base import Codec

__all__ = ["Codec", "UnsupportedAnnotationError", "codec_for"]
