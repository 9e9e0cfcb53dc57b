"""The wheel behind an installed package, as its metadata names it."""

from __future__ import annotations

import base64
import json
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

_PEOPLE = ("Maintainer", "Maintainer-email", "Author", "Author-email")
"""Fields of a package's metadata that name people."""


def installed_wheel(*names: str) -> str:
    """Return the build tag of the first installed package of `names` and the identity of its files, as one line.

    It is the SHA-256 of the wheel's file if the installer kept it, else that of the first file of compiled ops. Of a
    package that was built from a checkout it is the commit. The address that a wheel came from is left out.

    Returns:
        The line; empty if no package is installed or its metadata says nothing.
    """
    for name in names:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        return ", ".join(filter(None, [_tag(found), _identity(found)]))
    return ""


def packager(*names: str) -> str:
    """Return the maintainer of the first installed package of `names`, else its author; empty if neither is named.

    Addresses are left out.
    """
    for name in names:
        try:
            found = distribution(name).metadata
        except PackageNotFoundError:
            continue
        fields = (found[field] for field in _PEOPLE if field in found)
        return next(filter(None, (field.partition("<")[0].strip(' "') for field in fields)), "")
    return ""


def _tag(found: Distribution) -> str:
    """Return the first tag of the wheel, such as ``cp312-cp312-linux_x86_64``."""
    lines = (found.read_text("WHEEL") or "").splitlines()
    tag = next((line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")), "")
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    other = tag.startswith("cp") and "abi3" not in tag and not tag.startswith(f"{here}-")
    return f"{tag} (a tag of another Python than {here})" if other else tag


def _identity(found: Distribution) -> str:
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    archive = origin.get("archive_info", {})
    kept = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    if kept:
        return f"SHA-256 of the file {kept}"
    if commit := origin.get("vcs_info", {}).get("commit_id"):
        return f"built from commit {commit}"
    if "dir_info" in origin:
        return "built from a folder"
    for file in found.files or ():
        if file.name.startswith("_C") and file.suffix == ".so" and file.hash and file.hash.mode == "sha256":
            padded = file.hash.value + "=" * (-len(file.hash.value) % 4)
            return f"SHA-256 of {file} {base64.urlsafe_b64decode(padded).hex()}"
    return ""
