"""Says why a file is not the GGUF it was taken for: another format, or a download not finished."""

from __future__ import annotations

import os
import re
from pathlib import Path

_DOWNLOAD_SUFFIXES = (
    ".part",
    ".partial",
    ".incomplete",
    ".download",
    ".crdownload",
    ".downloadInProgress",
    ".aria2",
    ".!qB",
    "-partial",
)
"""What browsers, hub clients, llama.cpp and Ollama put after the name of a file they still write."""

_MAGIC_NUMBERS = (
    (b"PK\x03\x04", "a zip archive, maybe a PyTorch checkpoint"),
    (b"\x80\x02", "a Python pickle, maybe a PyTorch checkpoint"),
    (b"lmgg", "a GGML file from before GGUF"),
    (b"fmgg", "a GGML file from before GGUF"),
    (b"tjgg", "a GGML file from before GGUF"),
    (b"algg", "an adapter from before GGUF"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a rar archive"),
    (b"\x89HDF", "an HDF5 file, maybe Keras weights"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a Windows program"),
    (b"version https://git-lfs", "a Git LFS pointer: the real file was not fetched (run `git lfs pull`)"),
)
_HTML = re.compile(rb"\s*<(?:!doctype|html|head|\?xml)", re.IGNORECASE)
_SAFETENSORS = re.compile(rb".{5}\0\0\0\s*\{", re.DOTALL)
"""A little-endian length below 2**40, then a JSON object."""


def looks_like(start: bytes) -> str | None:
    """Name the format that a file's first bytes (64 are enough) belong to, if it is a known one."""
    for magic, name in _MAGIC_NUMBERS:
        if start.startswith(magic):
            return name
    if _SAFETENSORS.match(start):
        return "a safetensors file (convert it to GGUF first)"
    if _HTML.match(start):
        return "a web page: the download link gave an error or login page"
    if start.lstrip()[:1] in (b"{", b"["):
        return "JSON text"
    if start and not start.strip(b"\0"):
        return "zero bytes: a download that only reserved its space"
    return None


def download_sign(path: Path) -> Path | None:
    """Return the file that shows that `path` is still being downloaded: itself, a neighbour, or None."""
    if path.name.endswith(_DOWNLOAD_SUFFIXES):
        return path
    neighbours = (path.with_name(path.name + suffix) for suffix in _DOWNLOAD_SUFFIXES)
    return next((neighbour for neighbour in neighbours if os.access(neighbour, os.F_OK)), None)


def without_download_suffix(name: str) -> str:
    """Return the name that a file still downloading will have once it is whole."""
    suffix = next((suffix for suffix in _DOWNLOAD_SUFFIXES if name.endswith(suffix)), "")
    return name[: len(name) - len(suffix)]
