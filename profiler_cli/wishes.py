"""What is to become of a measurement."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """As the options say."""

    form: str | None
    output: str | None
    quiet: bool
    save: bool
    force: bool
