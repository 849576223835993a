"""Where other tools keep models on this disk: Ollama, the Hugging Face hub, llama.cpp, LM Studio.

Nothing is downloaded. Each store finds the file of one of its model names and lists what it has.
Names come from the command line and from files of other tools, so they are checked before they
become paths.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from probes.errors import ModelFileError, UsageError
from probes.file_kinds import download_sign
from probes.split_files import is_later_part
from probes.text import clean_text, show_path

_UNSAFE_CHARACTERS = frozenset("\\\0:" if sys.platform == "win32" else "\\\0")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_DEPTH = 5
"""Folders below a store's root that are searched for models."""
_NAMED_CHOICES = 8

SYSTEM_OLLAMA_FOLDERS = (
    Path("/usr/share/ollama/.ollama/models"),
    Path("/var/lib/ollama/.ollama/models"),
    Path("/var/lib/ollama/models"),
)
"""Where Ollama's service user keeps its models on Linux."""


class ModelStore(Protocol):
    """A place with models, whose names begin with `scheme` and a colon."""

    @property
    def scheme(self) -> str: ...

    def find(self, name: str) -> Path:
        """Return the file of a model (its first part). Raises UsageError or ModelFileError."""
        ...

    def names(self) -> Iterator[str]:
        """Yield the names of what is there, without the scheme; of split models the first part alone."""
        ...


def model_stores(environment: Mapping[str, str]) -> tuple[ModelStore, ...]:
    """Return all stores, with folders as the environment says."""
    home = home_folder(environment)
    return (
        OllamaStore(folders=_existing(_ollama_folders(environment, home))),
        HubStore(
            folders=_existing(_hub_folders(environment, home)),
            flat_folders=_existing(_llama_cpp_folders(environment, home)),
        ),
        LmStudioStore(folders=_existing([home / ".lmstudio/models", home / ".cache/lm-studio/models"])),
    )


def home_folder(environment: Mapping[str, str]) -> Path:
    """Return the user's home folder as the environment says, else as the system does."""
    named = environment.get("USERPROFILE" if sys.platform == "win32" else "HOME")
    return Path(named) if named else Path.home()


def _existing(folders: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(folder for folder in folders if _is_readable_folder(folder)))


def _is_readable_folder(folder: Path) -> bool:
    # os.access first: unlike is_dir it answers, and does not fail, below another user's folder.
    return os.access(folder, os.R_OK | os.X_OK) and folder.is_dir()


def _ollama_folders(environment: Mapping[str, str], home: Path) -> list[Path]:
    named = environment.get("OLLAMA_MODELS")
    return [*([Path(named)] if named else []), home / ".ollama/models", *SYSTEM_OLLAMA_FOLDERS]


def _hub_folders(environment: Mapping[str, str], home: Path) -> list[Path]:
    """In the order of huggingface_hub; llama.cpp uses the same layout, in LLAMA_CACHE first."""
    below = {
        "LLAMA_CACHE": "",
        "HF_HUB_CACHE": "",
        "HUGGINGFACE_HUB_CACHE": "",
        "HF_HOME": "hub",
        "XDG_CACHE_HOME": "huggingface/hub",
    }
    named = [Path(environment[key]) / tail for key, tail in below.items() if environment.get(key)]
    return [*named, home / ".cache/huggingface/hub"]


def _llama_cpp_folders(environment: Mapping[str, str], home: Path) -> list[Path]:
    """Where llama.cpp kept downloads as plain files (`fs_get_cache_directory`)."""
    folders = [Path(environment["LLAMA_CACHE"])] if environment.get("LLAMA_CACHE") else []
    if sys.platform == "win32":
        local = environment.get("LOCALAPPDATA")
        return [*folders, *([Path(local) / "llama.cpp"] if local else [])]
    if sys.platform == "darwin":
        return [*folders, home / "Library/Caches/llama.cpp"]
    return [*folders, Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "llama.cpp"]


def gguf_files(folder: Path, depth: int = _MAX_DEPTH) -> list[Path]:
    """Return the GGUF files of a folder and of those below it, without later parts of splits, in order.

    What can not be read is left out, as are links that lead nowhere.
    """
    found: list[Path] = []
    for root, folders, files in os.walk(folder):
        level = len(Path(root).relative_to(folder).parts)
        folders[:] = sorted(folders) if level < depth else []
        paths = (Path(root, name) for name in sorted(files) if name.lower().endswith(".gguf"))
        found.extend(path for path in paths if not is_later_part(path) and os.access(path, os.F_OK))
    return found


def _segments(name: str, scheme: str) -> list[str]:
    """Split a name into path segments that can not lead out of a store."""
    segments = name.split("/")
    if any(segment in ("", ".", "..") or _UNSAFE_CHARACTERS & set(segment) for segment in segments):
        raise UsageError(
            f"{clean_text(f'{scheme}:{name}')!r} is no model name: it may not hold `..`, backslashes "
            "or empty parts between slashes.",
            reason="bad-model-name",
        )
    return segments


def _unknown(scheme: str, name: str, known: Iterable[str], looked_in: Iterable[Path]) -> UsageError:
    """The error for a name that a store does not have: the close names, else what it has."""
    names = sorted(known)
    shown = clean_text(f"{scheme}:{name}")
    if not names:
        places = ", ".join(show_path(folder) for folder in looked_in) or "no such folder on this machine"
        return UsageError(f"There is no {shown}: nothing found ({places}).", reason="unknown-model")
    close = difflib.get_close_matches(name, names, n=_NAMED_CHOICES, cutoff=0.5) or names[:_NAMED_CHOICES]
    choices = ", ".join(clean_text(f"{scheme}:{choice}") for choice in close)
    return UsageError(f"There is no {shown} on this machine. Found: {choices}.", reason="unknown-model")


def _models_below(name: str, known: Iterable[str]) -> list[str]:
    """The models of a repository; its projectors, which are named so by custom, are no choice."""
    below = (other for other in known if other.startswith(f"{name}/"))
    return [other for other in below if "mmproj" not in other.rpartition("/")[2].lower()]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OllamaStore:
    """Manifests name a model's layers; the layer with the weights is a blob, a GGUF without ending."""

    folders: tuple[Path, ...]
    scheme: str = "ollama"

    def find(self, name: str) -> Path:
        place = self._place(name)
        for folder in self.folders:
            manifest = folder / "manifests" / place
            if manifest.is_file():
                return _ollama_blob(folder, manifest, f"{self.scheme}:{name}")
        raise _unknown(self.scheme, name, self.names(), self.folders)

    def names(self) -> Iterator[str]:
        for folder in self.folders:
            root = folder / "manifests"
            for manifest in sorted(root.glob("*/*/*/*")):
                host, user, model, tag = manifest.relative_to(root).parts
                prefix = "" if user == "library" else f"{user}/"
                if host != "registry.ollama.ai":
                    prefix = f"{host}/{user}/"
                yield f"{prefix}{model}:{tag}"

    def _place(self, name: str) -> Path:
        """Where the manifest of `[[HOST/]USER/]NAME[:TAG]` stands below `manifests`."""
        head, _, last = name.rpartition("/")
        model, _, tag = last.partition(":")
        segments = _segments("/".join([*([head] if head else []), model, tag or "latest"]), self.scheme)
        defaults = ["registry.ollama.ai", "library"]
        return Path(*defaults[: max(0, 4 - len(segments))], *segments)


def _ollama_blob(folder: Path, manifest: Path, shown: str) -> Path:
    """Return the weights that a manifest names."""
    digest = _DIGEST.fullmatch(_weights_digest(manifest))
    if digest is None:
        raise ModelFileError(
            f"{clean_text(shown)}: its manifest {show_path(manifest)} names no GGUF weights; "
            "pull the model again with Ollama.",
            reason="bad-manifest",
        )
    blob = folder / "blobs" / f"sha256-{digest[1]}"
    if blob.is_file():
        return blob
    state = "is still downloading" if download_sign(blob) else "is not on this disk"
    raise ModelFileError(
        f"{clean_text(shown)}: its file {show_path(blob)} {state}; pull the model again with Ollama.",
        reason="missing-blob",
    )


def _weights_digest(manifest: Path) -> str:
    """The digest of the layer with the weights; empty when the manifest is no manifest."""
    try:
        with manifest.open("rb") as file:
            content = json.loads(file.read(_MAX_MANIFEST_BYTES))
        layers = content["layers"]
        return next(
            str(layer["digest"])
            for layer in layers
            if layer["mediaType"] == "application/vnd.ollama.image.model"
        )
    except (OSError, ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HubStore:
    """The Hugging Face hub's cache, which llama.cpp shares, and llama.cpp's older flat cache."""

    folders: tuple[Path, ...]
    flat_folders: tuple[Path, ...]
    scheme: str = "hf"

    def find(self, name: str) -> Path:
        segments = _segments(name, self.scheme)
        if len(segments) < 3:
            return self._only_file(name)
        repository, file = segments[:2], Path(*segments[2:])
        for snapshot in self._snapshots(folder / _repository_folder(repository) for folder in self.folders):
            if (snapshot / file).is_file():
                return snapshot / file
        flat = "_".join(segments)
        for folder in self.flat_folders:
            if (folder / flat).is_file():
                return folder / flat
        self._refuse_unfinished(name, repository, flat)
        raise self._not_found(name)

    def _only_file(self, name: str) -> Path:
        """A repository alone is enough where one of its files is here."""
        models = _models_below(name, self.names())
        if len(models) == 1:
            return self.find(models[0])
        raise self._not_found(f"{name}/" if models else name)

    def _not_found(self, name: str) -> UsageError:
        known = list(self.names())
        same = [other for other in known if other.startswith(name)]
        return _unknown(self.scheme, name, same or known, (*self.folders, *self.flat_folders))

    def names(self) -> Iterator[str]:
        seen: dict[str, None] = {}
        repositories = (path for folder in self.folders for path in sorted(folder.glob("models--*")))
        for snapshot in self._snapshots(repositories):
            repository = snapshot.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
            for path in gguf_files(snapshot):
                seen[f"{repository}/{path.relative_to(snapshot).as_posix()}"] = None
        yield from seen

    def flat_files(self) -> Iterator[Path]:
        """Yield the files of the flat cache, whose names do not say where a repository's name ends."""
        for folder in self.flat_folders:
            yield from gguf_files(folder, depth=0)

    def _snapshots(self, repositories: Iterable[Path]) -> Iterator[Path]:
        """The snapshots of repositories, that of the main branch first, then the newest."""
        for repository in repositories:
            main = repository / "snapshots" / (_read_reference(repository / "refs" / "main") or "main")
            snapshots = [path for path in repository.glob("snapshots/*") if path.is_dir()]
            newest_first = sorted(snapshots, key=lambda path: path.stat().st_mtime, reverse=True)
            yield from sorted(newest_first, key=main.__ne__)

    def _refuse_unfinished(self, name: str, repository: list[str], flat: str) -> None:
        blobs = [folder / _repository_folder(repository) / "blobs" for folder in self.folders]
        unfinished = [path for folder in blobs for path in folder.glob("*.incomplete")]
        unfinished += [sign for folder in self.flat_folders if (sign := download_sign(folder / flat))]
        if unfinished:
            raise ModelFileError(
                f"{clean_text(f'{self.scheme}:{name}')} is not here yet, a download of it seems unfinished "
                f"({show_path(unfinished[0])}): wait for it or start it again.",
                reason="still-downloading",
            )


def _repository_folder(repository: Iterable[str]) -> str:
    return "--".join(("models", *repository))


def _read_reference(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")[:100].strip()
    except OSError:
        return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LmStudioStore:
    """LM Studio's folder: `PUBLISHER/MODEL/FILE.gguf`."""

    folders: tuple[Path, ...]
    scheme: str = "lmstudio"

    def find(self, name: str) -> Path:
        place = Path(*_segments(name, self.scheme))
        for folder in self.folders:
            if (folder / place).is_file():
                return folder / place
        models = _models_below(name, self.names())
        if len(models) == 1:
            return self.find(models[0])
        raise _unknown(self.scheme, name, self.names(), self.folders)

    def names(self) -> Iterator[str]:
        for folder in self.folders:
            yield from (path.relative_to(folder).as_posix() for path in gguf_files(folder))
