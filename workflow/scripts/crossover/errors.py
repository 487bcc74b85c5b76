"""What can go wrong, and how a person is told.

CrossoverError            the message is for the user; no traceback is shown
├── CampaignError         the config: file, key, value seen, what is allowed
├── EngineError           an engine that is not installed, or an answer that is no answer
├── ServerError           the life of a server
│   ├── StartupError      it crashed, timed out, or something else answers on its port
│   ├── ServerDiedError   it was there and is gone
│   ├── ServerHungError   it is there and sends nothing any more
│   └── DeviceBusyError   another campaign holds the device
├── MeasurementError      a point could not be measured
└── ResultFileError       a result file of another tool cannot be used
"""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator


class CrossoverError(Exception):
    """Base of all errors whose message says what failed, where to look and what to do."""


class CampaignError(CrossoverError):
    """The campaign file cannot be used as it is."""


class EngineError(CrossoverError):
    """An engine is not installed, or its answer cannot be read."""


class ServerError(CrossoverError):
    """A server could not be started, kept or stopped."""


class StartupError(ServerError):
    """A server did not become ready."""


class ServerDiedError(ServerError):
    """A server that was ready is gone."""


class ServerHungError(ServerError):
    """A server that was ready takes requests and answers none."""


class DeviceBusyError(ServerError):
    """A device is held by another campaign."""


class MeasurementError(CrossoverError):
    """A point could not be measured."""


class ResultFileError(CrossoverError):
    """A result file of another tool cannot be used, or does not say what must be known."""


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turn what a person can mend into one line on stderr and exit status 1.

    That is a `CrossoverError`, an interrupt, and a disk or quota that is full.
    """
    try:
        yield
    except CrossoverError as error:
        sys.exit(f"crossover: {error}")
    except KeyboardInterrupt:
        sys.exit("crossover: interrupted")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(
            f"crossover: {error}; make room where the results are, then run the same command again"
        )
