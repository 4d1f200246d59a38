"""`genkit doctor`: what works here, and what to do about the rest."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genkit.cli import errors, options
from genkit.cli.output import print_json
from genkit.cli.pipelines import build, read_recipe
from genkit.cli.plugins import describe as describe_plugin
from genkit.cli.plugins import print_plugins
from genkit.cli.settings import settings_of
from genkit.errors import GenkitError

if TYPE_CHECKING:
    from genkit.kit import Kit

_EPILOG = """
\b
Examples:
  genkit doctor
  genkit doctor --recipe smollm2-chat
"""

_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "gguf",
    "numpy",
    "pydantic",
    "pluggy",
    "typer",
    "hypothesis",
)

_OPTIONAL = {
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxruntime-genai": "export",
    "onnxscript": "export",
    "optimum-onnx": "optimum",
    "matplotlib": "plots",
}
"""Packages that nothing needs at once, and the extra that brings each."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=_EPILOG, short_help="What works here, what is missing, what to do.")(doctor)


def doctor(
    ctx: typer.Context,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            "-r",
            metavar="FILE|NAME",
            help="Also load this recipe's model and describe it.",
        ),
    ] = None,
    overrides: options.Overrides = None,
    json: options.Json = False,
    plugin: options.Plugins = None,
    debug: options.Debug = False,
) -> None:
    """Show versions, devices, backends, plugins and caches: what works, what is missing.

    A missing optional package is no failure. With a recipe its model is described too: its end
    tokens, context length, precision and device.
    """
    kit = settings_of(ctx).kit()
    report: dict[str, Any] = {
        "versions": _versions(),
        "optional": _optional(),
        "devices": _devices(),
        "providers": _providers(),
        "backends": _backends(kit),
        "plugins": [describe_plugin(each) for each in kit.plugins],
        "home": _home(),
        "models": _models(kit),
        "recipes": list(kit.registry.recipes()),
    }
    if recipe is not None:
        report["model"] = _model(ctx, recipe, overrides)
    if json:
        print_json(report)
    else:
        _print(report)


def _versions() -> dict[str, str | None]:
    from genkit._version import __version__
    from genkit.plugins.api import API_VERSION

    return {
        "genkit": __version__,
        "plugin API": API_VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{package: _installed(package) for package in _PACKAGES},
    }


def _optional() -> list[dict[str, Any]]:
    return [
        {"package": package, "version": _installed(package), "extra": extra}
        for package, extra in _OPTIONAL.items()
    ]


def _installed(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _devices() -> list[dict[str, Any]]:
    import torch

    devices: list[dict[str, Any]] = [
        {"device": "cpu", "detail": f"{torch.get_num_threads()} threads", "works": True}
    ]
    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = "no GPU, or no driver for it" if built else "this PyTorch is built without CUDA"
        devices.append({"device": "cuda", "detail": why, "works": False})
    for i in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(i)
        detail = f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB"
        devices.append({"device": f"cuda:{i}", "detail": detail, "works": True})
    return devices


def _providers() -> list[str]:
    """What the installed ONNX Runtime was built for; a loaded model says which one works."""
    try:
        import onnxruntime
    except ImportError:
        return []
    return list(onnxruntime.get_available_providers())


def _backends(kit: Kit) -> list[dict[str, Any]]:
    """Each backend, and whether its class can be imported; if not, the message says what to do."""
    backends = []
    for entry in kit.parts("backend"):
        cause = None
        try:
            getattr(entry.part_class, "check_installed", lambda: None)()
        except GenkitError as error:
            cause = str(error)
        backends.append({"name": entry.name, "works": cause is None, "cause": cause})
    return backends


def _models(kit: Kit) -> list[dict[str, Any]]:
    """The named models, and where each is. None is loaded."""
    models = []
    for name, source in kit.registry.models().items():
        place, cause = None, None
        try:
            where = source["model"] if isinstance(source, Mapping) else source
            place = str(where() if callable(where) else where)
        except Exception as error:  # a plugin's own search; the doctor goes on
            cause = errors.describe(error)
        models.append({"name": name, "source": place, "works": cause is None, "cause": cause})
    return models


def _home() -> dict[str, Any]:
    from genkit.home import home

    folder = home()
    kept = [
        {"name": path.name, "bytes": _size(path)}
        for path in (sorted(folder.iterdir()) if folder.is_dir() else [])
    ]
    return {"path": str(folder), "exists": folder.is_dir(), "contents": kept}


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())


def _model(ctx: typer.Context, recipe: str, overrides: list[str] | None) -> dict[str, Any]:
    model = build(ctx, read_recipe(ctx, recipe, overrides)).model
    describe: Callable[[], dict[str, Any]] | None = getattr(model, "describe", None)
    if describe is not None:
        return describe()
    return {
        "vocab_size": model.vocab_size,
        "context_length": model.context_length,
        "eos_token_ids": sorted(model.eos_token_ids),
        "device": str(model.device),
        "supports": sorted(model.supports),
    }


def _print(report: dict[str, Any]) -> None:
    for title, rows in _sections(report):
        typer.secho(title, bold=True)
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            typer.echo(f"  {name:<{width}}  {value}")
        typer.echo()
    typer.secho("Plugins", bold=True)
    print_plugins(report["plugins"])


def _sections(report: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    yield "Versions", [(name, version or "missing") for name, version in report["versions"].items()]
    yield "Optional packages", [(o["package"], _advice(o)) for o in report["optional"]]
    yield "Devices", [(d["device"], d["detail"]) for d in report["devices"]]
    if report["providers"]:
        yield "ONNX Runtime was built for", [(name, "") for name in report["providers"]]
    yield "Backends", [(b["name"], b["cause"] or "works") for b in report["backends"]]
    home = report["home"]
    yield (
        f"Kept between runs: {home['path']}" + ("" if home["exists"] else " (not there yet)"),
        [(kept["name"], f"{kept['bytes'] / 2**20:.1f} MiB") for kept in home["contents"]],
    )
    yield "Models", [(m["name"], m["cause"] or m["source"]) for m in report["models"]]
    if "model" in report:
        described = report["model"].items()
        yield "Model of the recipe", [(name, _words(value)) for name, value in described]


def _advice(package: dict[str, Any]) -> str:
    if package["version"] is not None:
        return str(package["version"])
    where = ", into an environment of its own," if package["extra"] == "optimum" else ""
    return f"not installed; pip install 'lm-genkit[{package['extra']}]'{where} brings it"


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
