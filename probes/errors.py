"""The one error base: each error says what to do and carries the exit code that it means.

Standard library only, so that every layer may import it.
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_UNMEASURED = 3
EXIT_INTERRUPTED = 130


class LlmphaseError(Exception):
    """Base of every error that a person may see: one clear line that says what to do.

    `reason` is a stable short code for machines, for example `not-gguf`; `exit_code` is what the
    command ends with.
    """

    exit_code: int = EXIT_UNMEASURED

    def __init__(self, message: str, *, reason: str = "error") -> None:
        super().__init__(message)
        self.reason = reason


class UsageError(LlmphaseError):
    """The request itself is wrong: a malformed option, an unknown name, a file of the wrong kind."""

    exit_code = EXIT_USAGE


class ModelFileError(UsageError):
    """The model file can not be used: not a GGUF, truncated, a part missing, no decoder in it."""


class UnmeasurableError(LlmphaseError):
    """The request is right and the measurement could not be made: memory, a crash, an unreadable file."""

    exit_code = EXIT_UNMEASURED


class InterruptedRunError(LlmphaseError):
    """The user interrupted; what was measured is saved and named in the message."""

    exit_code = EXIT_INTERRUPTED
