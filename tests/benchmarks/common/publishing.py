"""Publication of a result in docs/ or in a model card."""

from pathlib import Path

from .paths import DOCS

MEASUREMENTS = DOCS / "measurements.md"


def publish_section(heading: str, text: str, *, before: str, document: Path = MEASUREMENTS) -> None:
    """Replaces the section of a document that has this heading.

    Args:
        heading: The section's first line, which marks where it begins.
        text: The rest of the section.
        before: Heading of the section that a new one is put before.
        document: Path of the Markdown document.
    """
    content = document.read_text(encoding="utf-8")
    start = content.find(heading)
    if start < 0:
        start = end = content.index(before)
    else:
        end = content.index("\n## ", start) + 1
    section = f"{heading}\n\n{text}\n\n"
    document.write_text(content[:start] + section + content[end:], encoding="utf-8")
