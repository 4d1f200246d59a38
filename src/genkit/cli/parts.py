"""`genkit parts`: what recipes can be made of."""

from __future__ import annotations

import inspect
import json as json_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from genkit.cli import options
from genkit.cli.output import print_json, print_table
from genkit.cli.settings import prints_aside, settings_of
from genkit.errors import GenkitError, UnknownNameError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from genkit.plugins.registry import PartEntry, Registry

_EPILOG = """
\b
Examples:
  genkit parts
  genkit parts samplers
  genkit parts processors top_p
"""

_WORDS = {
    "backends": "backend",
    "contexts": "context",
    "caches": "cache_manager",
    "decoders": "decoder",
    "processors": "logits_processor",
    "samplers": "sampler",
    "stop_criteria": "stop_criterion",
    "exporters": "exporter",
}
"""What people call the kinds; other forms are understood too."""


_GRADES = {
    "exact": "as without a cache, up to rounding",
    "tolerance": "as without a cache, within a bound that it states",
    "lossy": "not as without a cache; `genkit verify` measures what is lost",
}
"""What each grade of a cache manager says of the logits."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=_EPILOG, short_help="List parts, or show the options of one.")(parts)


def parts(
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Argument(help="Only this kind: processors, samplers, caches, ...")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Only this part, with its options.")] = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """List the registered parts; with a name, everything about one of them."""
    registry = settings_of(ctx).kit().registry
    if kind is None:
        entries = registry.parts()
    elif name is None:
        entries = registry.parts(find_kind(registry, kind))
    else:
        entries = [_entry(registry, find_kind(registry, kind), name)]
    if json:
        with prints_aside():
            described = [_describe(entry, strict=name is not None) for entry in entries]
        print_json(described)
    elif name is None:
        rows = [[e.kind.replace("_", " "), e.name, _summary(e), e.plugin.name] for e in entries]
        print_table(["kind", "name", "summary", "plugin"], rows)
    else:
        _print_part(entries[0])


def find_kind(registry: Registry, word: str) -> str:
    """The kind that a word stands for, however it is written.

    Raises:
        UnknownNameError: there is no such kind; names the nearest.
    """
    normal = word.lower().replace("-", "_").replace(" ", "_")
    for known, kind in _WORDS.items():
        if normal in {known, known.removesuffix("s"), kind, f"{kind}s"}:
            return kind
    homes = [known for known, kind in _WORDS.items() if normal in registry.names(kind)]
    hint = "; ".join(f"{word!r} is a part: genkit parts {home} {normal}" for home in homes)
    raise UnknownNameError("kind of part", word, _WORDS, hint)


def _entry(registry: Registry, kind: str, name: str) -> PartEntry:
    entry = registry.entry(kind, name)
    [found] = [each for each in registry.parts(kind) if each is entry]
    return found


def _summary(entry: PartEntry) -> str:
    try:
        return entry.summary
    except Exception as error:  # a class of a plugin may raise whatever it likes
        return f"cannot be used: {_said(error)}"


def _said(error: Exception) -> str:
    from genkit.plugins.plugin import one_line

    return str(error) if isinstance(error, GenkitError) else one_line(error)


def _describe(entry: PartEntry, strict: bool) -> dict[str, Any]:
    """A part as plain data. In a list, one that cannot be imported does not spoil the others."""
    described: dict[str, Any] = {
        "kind": entry.kind,
        "name": entry.name,
        "summary": "",
        "plugin": entry.plugin.name,
        "source": _source(entry),
        "options": None,
        "grade": None,
    }
    try:
        described["summary"] = entry.summary
        described["options"] = _options(entry)
        described["grade"] = _grade(entry)
    except Exception as error:  # a class of a plugin may raise whatever it likes
        if strict:
            raise
        described["error"] = _said(error)
    return described


def _source(entry: PartEntry) -> str:
    target = entry.target
    if isinstance(target, type):
        return f"{target.__module__}:{target.__qualname__}"
    return target.target


def _grade(entry: PartEntry) -> str | None:
    """Of a cache manager; other parts have none."""
    grade: str | None = getattr(entry.part_class, "grade", None)
    return grade


def _options(entry: PartEntry) -> list[dict[str, Any]]:
    fields = {n: f for n, f in entry.part_class.model_fields.items() if n != "type"}
    return [
        {
            "name": name,
            "type": type_text(field.annotation) + _bounds(field.metadata),
            "required": field.is_required(),
            "default": None if field.is_required() else _default(field),
            "description": field.description or "",
        }
        for name, field in fields.items()
    ]


def _default(field: FieldInfo) -> Any:
    """A default as JSON can show it: what JSON has no form for, as Python writes it."""
    from genkit.core.settings import plain

    try:
        value = plain(field.get_default(call_default_factory=True))
        try:
            json_module.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            return repr(value)
    except Exception as error:  # the factory of a plugin may raise whatever it likes
        return f"cannot be shown: {_said(error)}"
    return value


def _print_part(entry: PartEntry) -> None:
    listed = _options(entry)
    typer.echo(f"{entry.name} ({entry.kind.replace('_', ' ')})\n")
    typer.echo(inspect.cleandoc(entry.part_class.__doc__ or entry.summary))
    typer.echo()
    if listed:
        rows = [
            [o["name"], o["type"], "required" if o["required"] else _value(o), o["description"]]
            for o in listed
        ]
        print_table(["option", "type", "default", "description"], rows)
    else:
        typer.echo("It has no options.")
    typer.echo()
    if grade := _grade(entry):
        typer.echo(f"grade   {grade} ({_GRADES.get(grade, 'there is no such grade')})")
    typer.echo(f"plugin  {entry.plugin.name} ({entry.plugin.origin})\nsource  {_source(entry)}")


def _value(option: dict[str, Any]) -> str:
    from genkit.cli.recipe_text import scalar_text

    value = option["default"]
    return str(value) if isinstance(value, dict | list) else scalar_text(value)


def type_text(annotation: Any) -> str:
    """A type as a person writes it: `int | None`, `"error" | "truncate_left"`, `list of int`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return "null"
    if origin is Literal:
        return " | ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in arguments)
    if origin is Union or type(annotation).__name__ == "UnionType":
        return " | ".join(map(type_text, arguments))
    if origin is Annotated:
        return type_text(arguments[0])
    if origin in (list, tuple, set, frozenset):
        items = [a for a in arguments if a is not Ellipsis]
        return f"list of {' and '.join(dict.fromkeys(map(type_text, items)))}"
    if origin is dict and arguments:
        return f"mapping of {type_text(arguments[0])} to {type_text(arguments[1])}"
    names = {str: "text", bool: "true | false", int: "integer", float: "number"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _bounds(metadata: list[Any]) -> str:
    """The range that a number must lie in, ` > 0, <= 1`."""
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = [
        f"{sign} {getattr(constraint, name)}"
        for constraint in metadata
        for name, sign in signs.items()
        if getattr(constraint, name, None) is not None
    ]
    return f" {', '.join(found)}" if found else ""
