"""Brings a model from the hub into a local folder, and says shortly why it cannot."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from genkit.backends.base import Progress
from genkit.errors import ModelLoadError

PATIENCE = 10.0  # seconds to wait for an answer of the hub

_TEXT = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken"]


def fetch(
    hub_id: str,
    revision: str | None,
    *,
    pickle: bool,
    code: bool,
    progress: Progress,
) -> Path:
    """The local folder of a hub model, brought up to date if the hub can be reached.

    Args:
        hub_id: ``owner/name``.
        revision: branch, tag or commit; by default the main branch.
        pickle, code: whether pickled weights and Python files may come along.
        progress: told when files are fetched.

    Raises:
        ModelLoadError: there is no such model or revision, access is refused, or the hub cannot be
            reached and the model is not on this machine.
    """
    patterns = [*_TEXT, "*.safetensors", *(["*.bin", "*.pt"] if pickle else [])]
    patterns += ["*.py"] if code else []
    try:
        commit = HfApi().model_info(hub_id, revision=revision, timeout=PATIENCE).sha
        progress(f"fetching {hub_id} from the hub")
        return Path(snapshot_download(hub_id, revision=commit, allow_patterns=patterns))
    except GatedRepoError as error:
        raise ModelLoadError(
            f"access to {hub_id!r} is restricted: accept its terms on the hub, then log in with "
            "`hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelLoadError(f"{hub_id!r} has no revision {revision!r} on the hub") from error
    except RepositoryNotFoundError as error:
        raise ModelLoadError(
            f"there is no model {hub_id!r} on the hub, or it is private and you are not logged in"
        ) from error
    except HFValidationError as error:
        raise ModelLoadError(f"{hub_id!r} is no hub id: {error}") from error
    except Exception as error:  # no connection: the class is that of the HTTP library underneath
        return _on_this_machine(hub_id, revision, error)


def _on_this_machine(hub_id: str, revision: str | None, cause: Exception) -> Path:
    try:
        return Path(snapshot_download(hub_id, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        reason = f"{type(cause).__name__}: {cause}".strip().splitlines()[0]
        raise ModelLoadError(
            f"{hub_id!r} cannot be fetched from the hub ({reason}), and is not on this machine; "
            "give a local folder or a .gguf file, or try again with a connection"
        ) from cause
