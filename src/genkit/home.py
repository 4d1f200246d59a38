"""Where genkit keeps what it makes: converted models, stored prefixes."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from genkit.errors import InputError


def home() -> Path:
    """The folder for everything kept between runs: `GENKIT_HOME`, or the platform's cache folder.

    It is read at each call, and not created here.

    Raises:
        InputError: `GENKIT_HOME` begins with the home of a user that there is not.
    """
    chosen = os.environ.get("GENKIT_HOME")
    if not chosen:
        return Path(platformdirs.user_cache_dir("genkit"))
    try:
        return Path(chosen).expanduser()
    except RuntimeError as error:
        raise InputError(f"GENKIT_HOME is {chosen!r}: {error}".rstrip(".")) from error
