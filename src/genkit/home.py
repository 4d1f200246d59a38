"""Where genkit keeps what it makes: converted models, stored prefixes."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """The folder for everything kept between runs: `GENKIT_HOME`, or the platform's cache folder.

    It is read at each call, and not created here.
    """
    chosen = os.environ.get("GENKIT_HOME")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("genkit"))
