"""The package that a plugin begins with."""

from __future__ import annotations

import ast
import datetime
import json
import keyword
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jinja2 import Environment, PackageLoader, StrictUndefined

from genkit.errors import InputError
from genkit.plugins.hookspecs import PART_HOOKS
from genkit.plugins.registry import label
from genkit.recipes.yaml_reader import scalar

__all__ = ["KINDS", "Package"]

KINDS = {
    "logits_processor": "Keeps every token within `gap` of the largest logit.",
    "sampler": "Draws by a power of the probabilities.",
    "stop_criterion": "Ends a row whose last tokens are all the same.",
    "cache_manager": "Keeps keys and values as bfloat16 has them.",
    "backend": "A model that has counted which letter follows which in a text.",
    "decoder": "Feeds the model at most `size` tokens at a time.",
    "context": "Puts the prompt into a frame of words.",
    "observer": "Says of each run how many different tokens it has generated.",
}
"""What the part of a new package does, by its kind."""

_FILES = {
    "README.md": "README.md",
    "LICENSE": "LICENSE",
    "pyproject.toml": "pyproject.toml",
    "recipe.yaml": "recipe.yaml",
    ".github/workflows/test.yml": "workflow.yml",
    "src/{module}/__init__.py": "init.py",
    "src/{module}/{name}.py": "part.py",
    "src/{module}/py.typed": "py.typed",
    "tests/test_{name}.py": "test.py",
}
"""Every file of a package, and the template that it is made from."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_PREFIXES = ("genkit_", "lm_genkit_")
_LONGEST = 24  # so that no line of the package becomes too long


@dataclass(frozen=True)
class Package:
    """An installable plugin with one part.

    Attributes:
        name: of the plugin and its part.
        kind: of the part, or `observer`.
        author: whom licence and metadata name; empty: its authors, and nobody.

    Raises:
        InputError: the name will not do, of the plugin or of the author.
    """

    name: str
    kind: str
    author: str = ""

    def __post_init__(self) -> None:
        self._check_name()
        self._check_author()

    @property
    def module(self) -> str:
        """The module that it is imported as."""
        return f"genkit_{self.name}"

    @property
    def distribution(self) -> str:
        """The name that it is installed by, and that of its folder."""
        return f"lm-genkit-{self.name.replace('_', '-')}"

    @property
    def class_name(self) -> str:
        """The class of the part."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def part_file(self) -> str:
        """Where the part is, in the folder of the package."""
        return f"src/{self.module}/{self.name}.py"

    def files(self) -> Iterator[tuple[str, str]]:
        """The path and the text of every file."""
        templates = Environment(
            loader=PackageLoader("genkit.scaffold"),
            undefined=StrictUndefined,
            trim_blocks=True,
            keep_trailing_newline=True,
        )
        for path, source in _FILES.items():
            of_kind, of_all = f"{self.kind}/{source}.jinja", f"common/{source}.jinja"
            text = templates.select_template([of_kind, of_all]).render(
                name=self.name,
                kind=self.kind,
                kind_words=label(self.kind),
                module=self.module,
                distribution=self.distribution,
                class_name=self.class_name,
                summary=KINDS[self.kind],
                hook=PART_HOOKS.get(self.kind, ""),
                author=self.author,
                quoted_author=json.dumps(self.author, ensure_ascii=False),  # as TOML has strings
                year=datetime.date.today().year,
            )
            yield path.format(module=self.module, name=self.name), text

    def write(self, into: Path) -> Path:
        """Write the folder of the package: all of it, or nothing.

        Args:
            into: the folder that it is put into; made if there is none.

        Returns:
            The folder of the package.

        Raises:
            InputError: there is something in its place already.
        """
        target = into / self.distribution
        is_empty = target.is_dir() and not target.is_symlink() and not any(target.iterdir())
        if os.path.lexists(target) and not is_empty:
            raise InputError(
                f"there is something at {str(target)!r} already; choose another name, or another "
                "place with --into"
            )
        into.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=into, prefix=f".{self.distribution}-") as unfinished:
            folder = Path(unfinished) / self.distribution
            for path, text in self.files():
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", newline="\n")
            if target.exists():
                target.rmdir()  # empty; some systems rename onto nothing only
            folder.rename(target)
        return target

    def _check_author(self) -> None:
        if not self.author.isprintable():
            raise InputError(f"the author {self.author!r} has signs that cannot be printed")

    def _check_name(self) -> None:
        plain = re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")
        if plain.startswith(_PREFIXES):
            bare = re.sub("^(lm_)?genkit_", "", plain)
            raise InputError(
                f"{self.name!r} begins as the name of its package will: the package of {bare!r} is "
                f"lm-genkit-{bare.replace('_', '-')}; leave that out"
            )
        if not _NAME.fullmatch(self.name) or len(self.name) > _LONGEST:
            plain = plain[:_LONGEST].strip("_")
            hint = f"; did you mean {plain!r}?" if _NAME.fullmatch(plain) else ""
            raise InputError(
                f"{self.name!r} is no name for a plugin: it takes at most {_LONGEST} small letters "
                f"and digits, words joined by _, and begins with a letter{hint}"
            )
        if keyword.iskeyword(self.name) or keyword.iskeyword(self.class_name):
            raise InputError(f"{self.name!r} is a word of Python; choose another name")
        if scalar(self.name) != self.name:
            raise InputError(f"{self.name!r} is no text in a recipe; choose another name")
        if self.class_name in self._imported():
            raise InputError(
                f"the class of {self.name!r} would be {self.class_name}, which its files import "
                "already; choose another name"
            )

    def _imported(self) -> set[str]:
        """What the files of the part and of its tests import from elsewhere."""
        sources = [text for path, text in self.files() if path.endswith(".py")]
        nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
        imports = (node for node in nodes if isinstance(node, ast.ImportFrom))
        return {
            alias.name
            for node in imports
            for alias in node.names
            if not (node.module or "").startswith(self.module)
        }
