"""Adds the generated reference to the documentation site, as mkdocs builds it."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from reference import Subjects, Undocumented, pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of docs/, and those of the reference."""
    try:
        made = pages(Subjects())
    except Undocumented as error:
        raise PluginError(str(error)) from error
    for name, text in made.items():
        files.append(File.generated(config, f"reference/{name}", content=text))
    return files
