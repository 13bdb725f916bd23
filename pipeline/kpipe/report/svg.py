"""A matplotlib figure that ends as one accessible, themeable, deterministic ``<svg>`` element."""

from __future__ import annotations

import io
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins that occur nowhere else; `_themed` makes CSS variables of them. Distinct in grey and to the colour blind.
INK = "#1b1f25"
MUTED = "#5b6471"
GRID = "#d9dde3"
PASS = "#00745c"  # noqa: S105 - a colour
FAIL = "#c0392a"
ACCENT = "#3b6ea8"

_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--line", PASS: "--pass", FAIL: "--fail", ACCENT: "--accent"}
_WIDTH = 10.0
"""Inches: 720 units of the view box."""
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


class Page:
    """One figure in the making. No dataclass: those have their annotations imported, and matplotlib must not be for ``kpipe --help``."""

    def __init__(self, key: str, figure: Figure, axes: Axes) -> None:
        self.key = key
        self.figure = figure
        self.axes = axes

    def finish(self, title: str, description: str) -> str:
        """Return the ``<svg>`` element; ``title`` and ``description`` are for readers who don't see it."""
        stream = io.StringIO()
        with warnings.catch_warnings():
            # The browser draws the text (svg.fonttype none): that matplotlib's own font lacks an emoji is of no consequence.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            self.figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        return _element(stream.getvalue(), self.key, title, description)


@contextmanager
def canvas(key: str, *, rows: int, row: float) -> Iterator[Page]:
    """A figure with one pair of axes, ``rows`` rows of ``row`` inches high.

    Args:
        key: names the plot; ids in the drawing begin with it, so that several fit in one page.
        rows: how many rows will be drawn.
        row: height of one, inches.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": key,
        # A name that holds dollar signs is a name, not a formula.
        "text.parse_math": False,
        "font.family": ["DejaVu Sans"],
        "font.size": 11,
        "text.color": INK,
        "axes.labelcolor": MUTED,
        "axes.edgecolor": GRID,
        "xtick.color": MUTED,
        "ytick.color": INK,
        "xtick.labelsize": 10.5,
        "axes.labelsize": 10.5,
    }
    with mpl.rc_context(style):
        height = rows * row + 0.85
        figure = Figure(figsize=(_WIDTH, height), dpi=72)
        axes = figure.add_axes((0.2, 0.6 / height, 0.78, 1 - 0.72 / height))
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_axisbelow(True)
        axes.grid(axis="x", color=GRID, lw=0.6)
        yield Page(key, figure, axes)


def _element(document: str, key: str, title: str, description: str) -> str:
    """Strip the document down to its element: no doctype, no metadata, no style sheet that would reach the whole page."""
    body = document[document.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style [^>]*>.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]*)"', body)
    inner = body[body.index(">") + 1 :]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box.group(1) if box else ""}" '
        f'class="plot" role="img" aria-labelledby="{key}-title {key}-desc" stroke-linejoin="round" stroke-linecap="butt">'
        f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-desc">{escape(description)}</desc>'
    )
    return head + _themed(_own_ids(inner, key)).strip()


def _own_ids(inner: str, key: str) -> str:
    """Drop the ids that nothing refers to and prefix the others: matplotlib numbers them alike in every figure."""
    used = set(re.findall(r'xlink:href="#([^"]+)"|url\(#([^)]+)\)', inner))
    names = {name for pair in used for name in pair if name}

    def own(match: re.Match[str]) -> str:
        return f' id="{key}-{match.group(1)}"' if match.group(1) in names else ""

    inner = re.sub(r' id="([^"]*)"', own, inner)
    inner = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{key}-\1"', inner)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", inner)


def _themed(inner: str) -> str:
    for color, variable in _VARIABLES.items():
        inner = inner.replace(color, f"var({variable}, {color})")
    inner = re.sub(r"'DejaVu Sans'(, sans-serif)?", _FONTS, inner)
    return re.sub(r"\n\s*", "\n", inner)
