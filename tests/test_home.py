"""Where genkit keeps what it makes."""

from pathlib import Path

import pytest

from genkit.errors import InputError
from genkit.home import home


def test_a_tilde_is_the_home_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENKIT_HOME", "~/kept")
    assert home() == Path.home() / "kept"


def test_the_home_of_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENKIT_HOME", "~nobody-of-this-name/kept")
    with pytest.raises(InputError, match="GENKIT_HOME is '~nobody-of-this-name/kept'"):
        home()
