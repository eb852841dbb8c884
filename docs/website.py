"""Build the site of the documentation: `make docs` writes it to site/.

The site has a copy of each page at its place in the repository, so that every link works in both.
It starts at the README and the pages of docs/, and follows their links. A file that is no page,
such as a recipe's YAML, gets a page with its text, and a folder a page with the list of its files.
A link that leads nowhere, or to no heading, ends the build with exit code 2.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pipeline.errors import UserError, run_cli

ROOT = Path(__file__).resolve().parents[1]
SOURCES = "build/docs"  # `docs_dir` of mkdocs.yml
LINK = re.compile(r'(\]\(|(?:src|srcset|href)=")(?!\w+:|#)([^)"#\s]+)')
# A picture for each mode; the site has a switch for the mode, which a media query does not see.
MODES = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img src="([^"]+)"([^>]*)>\s*</picture>'
)
PICTURES = (".png", ".svg", ".jpg", ".gif")
LANGUAGES = {".py": "python", ".sh": "bash"}  # of suffixes that are no language's name


def as_site(text: str) -> str:
    """Markdown of GitHub for Python-Markdown, which needs a blank line before a list."""
    images = r'<p><img class="dark-only" src="\1"\3><img class="light-only" src="\2"\3></p>'
    text = MODES.sub(images, text)
    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        is_item = re.match(r"(?:[-*]|\d+\.) ", line)
        before = lines[-1] if lines else ""
        if is_item and not is_code and re.match(r"(?![-*] |\d+\. )\S", before):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def page_of_text(path: Path) -> str:
    """A page that shows a file."""
    text = path.read_text(encoding="utf-8")
    language = LANGUAGES.get(path.suffix, path.suffix.removeprefix("."))
    fence = "`" * (2 + max(map(len, re.findall("`+", text)), default=1))
    return f"# {path.relative_to(ROOT)}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def page_of_folder(path: Path) -> str:
    """A page that lists a folder's files."""
    names = [one.name for one in sorted(path.iterdir()) if one.name[0] not in "._"]
    lines = [f"- [{name}]({name})" for name in names]
    return f"# {path.relative_to(ROOT)}\n\n" + "\n".join(lines) + "\n"


class Site:
    """The pages of the site, as files below `folder` at their places in the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[Path, Path] = {}

    def add(self, path: Path) -> Path:
        """Add a file or folder, and what it links to; return its place."""
        if path in self.seen:
            return self.seen[path]
        relative = path.relative_to(ROOT)
        if path.is_dir() and (path / "README.md").is_file():
            return self.add(path / "README.md")
        if path.is_dir():
            relative, text = relative / "README.md", page_of_folder(path)
        elif path.suffix == ".md":
            text = as_site(path.read_text(encoding="utf-8"))
        elif path.suffix in PICTURES:
            text = None
        else:
            relative, text = relative.with_name(f"{relative.name}.md"), page_of_text(path)
        place = self.seen[path] = self.folder / relative
        place.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            shutil.copy(path, place)
        elif path.suffix == ".md" or path.is_dir():
            place.write_text(self.follow(text, path), encoding="utf-8")
        else:
            place.write_text(text, encoding="utf-8")
        return place

    def follow(self, text: str, page: Path) -> str:
        """Add what a page links to; return its text with the links of the site."""
        folder = page if page.is_dir() else page.parent

        def replace(found: re.Match[str]) -> str:
            target = Path(os.path.normpath(folder / found[2]))
            if not target.exists() or not target.is_relative_to(ROOT):
                raise UserError(f"{page.relative_to(ROOT)}: {found[2]}: a link that leads nowhere")
            place = self.add(target)
            here = self.folder / folder.relative_to(ROOT)
            return found[1] + os.path.relpath(place, here)

        pieces = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.M | re.S)
        return "".join(p if p.startswith("`") else LINK.sub(replace, p) for p in pieces)


def build(folder: Path) -> None:
    """Write folder/site; the pages that it is made of are in folder/build/docs."""
    sources = folder / SOURCES
    for one in (sources, folder / "site"):
        shutil.rmtree(one, ignore_errors=True)
    site = Site(sources)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        site.add(page)
    shutil.copy(ROOT / "docs" / "site.css", sources / "docs" / "site.css")
    if folder != ROOT:
        shutil.copy(ROOT / "mkdocs.yml", folder)
    words = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr.partition("Traceback")[0])
        raise UserError("docs: a page is wrong, as above")


def main() -> None:
    """Build the site of this clone."""
    build(ROOT)
    sys.stdout.write("docs: site/index.html; with its search: python3 -m http.server -d site\n")


if __name__ == "__main__":
    run_cli(main)
