"""What every plot shares: matplotlib, as SVG in the colours of the page, light or dark.

Everything is drawn for the width of a phone: scaled down, text would be lost.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial, wraps
from html import escape, unescape
from importlib.resources import files
from typing import Any, ParamSpec

from onesdaug.errors import ConfigError, how_to_install

P = ParamSpec("P")
Look = dict[str, Any]  # properties of a line and its dots
Values = Sequence[float]

SHAPES = ("o", "s", "D", "^")
_SHAPE_OF = {"traditional": "s", "g1": "D", "g2": "^", "g4": "s", "g5": "D", "oracle": "^"}
_SIZES = {"o": 9, "s": 8, "D": 7.5, "^": 9.5}
_WIDTH, _BELOW, _LEGEND_LINE = 360, 42, 18  # pixels

_CSS = (files("onesdaug.report") / "style.css").read_text(encoding="utf-8")
# the light palette is the style sheet's first block; dark pages give the same names other values
COLOURS: dict[str, str] = dict(re.findall(r"--(\w+): (#\w{6});", _CSS.partition("}")[0]))
_VARIABLES = {value: f"var(--{name})" for name, value in COLOURS.items()}
ZERO: Look = {"color": COLOURS["quiet"], "linewidth": 1, "linestyle": (0, (3, 3)), "zorder": 1}
DASHED: Look = {"color": COLOURS["quiet"], "linewidth": 1.6, "linestyle": (0, (5, 4)), "zorder": 1.5}
# groups, the font (the page has its own), turns by no angle, digits behind a hundredth of a pixel
_NOT_NEEDED = r'</?g\b.*|; font-family: [^;"]*| transform="rotate\(-0 [^"]*"|(?<=\.\d\d)\d+(?=[\s"])'


def look(mark: str, shape: str = "", second: bool = False, line: bool = True) -> Look:
    """A colour for each mark, and a shape for those who do not tell colours apart; the paper is hollow."""
    shape = shape or _SHAPE_OF.get(mark, "o")
    name = re.search(rf"\.{mark}\b.*--c: var\(--(\w+)\)", _CSS)  # as in the tables
    colour, card = COLOURS[name[1] if name else "ink"], COLOURS["card"]
    hollow = second or mark == "paper"
    return {
        "color": colour,
        "marker": shape,
        "markersize": _SIZES[shape],
        "markerfacecolor": card if hollow else colour,
        "markeredgecolor": colour if hollow else card,
        "markeredgewidth": 1.6 if hollow else 1,
        "linestyle": ((0, (2, 3)) if second else "-") if line else "none",
    }


def looks(marks: Sequence[str], shapes: Sequence[str] = (), line: bool = True) -> list[Look]:
    """One for each; whatever comes a second time is hollow and dotted, a third time of the next shape as well."""
    both = list(zip(marks, shapes or [_SHAPE_OF.get(mark, "o") for mark in marks], strict=True))
    found = []
    for place, (mark, shape) in enumerate(both):
        before = both[:place].count((mark, shape))
        shape = SHAPES[(SHAPES.index(shape) + max(0, before - 1)) % len(SHAPES)]
        found.append(look(mark, shape, second=before > 0, line=line))
    return found


class Chart:
    """Axes of so many pixels under the legend of `keys`; `up` names the upright one above it: no head need turn.

    `signed` says which axes ("x", "y", "xy") show differences, `sides` the pixels to their left and right.
    """

    def __init__(
        self, name: str, height: float, across: str, up: str = "", signed: str = "", sides: tuple[int, int] = (40, 14)
    ) -> None:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        self.name, self.height, self.left, self.width = name, height, sides[0], _WIDTH - sum(sides)
        self.keys: dict[str, Look] = {}
        self.figure = Figure(dpi=72, frameon=False)
        self.axes = self.figure.add_axes((0, 0, 1, 1), frameon=False, xlabel=across)
        self.axes.xaxis.set_label_coords(0.5, -23 / height)
        self.axes.set_title(up, loc="left", x=(2 - self.left) / self.width)
        self.axes.grid(axis="y")
        for axis, sign in ((self.axes.xaxis, "+" * ("x" in signed)), (self.axes.yaxis, "+" * ("y" in signed))):
            axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
            axis.set_major_formatter(FuncFormatter(partial(_number, sign=sign)))

    def line(self, key: str, style: Look, x: Values, y: Values, told: str = "") -> None:
        """Without dots, but with them in the legend: they are drawn above all lines."""
        self.keys[key] = style
        tell(self.axes.plot(x, y, **{**style, "marker": ""}), told or key)

    def dots(self, style: Look, x: Values, y: Values, told: Sequence[str], xerr: Any = None, yerr: Any = None) -> None:
        """Dots with their intervals, without a line."""
        style = {**style, "linestyle": "none", "zorder": 3}
        dots, _, bars = self.axes.errorbar(x, y, xerr=xerr, yerr=yerr, elinewidth=2, capthick=2, **style)
        tell([dots, *bars], *told)

    def svg(self) -> str:
        """Of what matplotlib writes the shapes and words: nothing that reaches beyond the plot, no references."""
        from matplotlib.lines import Line2D
        from matplotlib.patheffects import Normal
        from matplotlib.text import Text

        whole = self._lay_out()
        for artist in self.figure.findobj():
            artist.set_clip_on(False)
            if isinstance(artist, Text):
                artist.set_text(_printable(artist.get_text()))
            elif isinstance(artist, Line2D):
                artist.set_path_effects([Normal()])  # so that each dot is a shape, not a reference to one
        file = io.StringIO()
        self.figure.savefig(file, format="svg")
        body = file.getvalue().partition("</defs>")[2].removesuffix("</svg>\n")
        body = re.sub(r'<g id="told:([^"]*)">(.*?)</g>', _titled, body, flags=re.DOTALL)
        body = " ".join(re.sub("<[^>]*>", _plain, body).split()).replace("> <", ">\n<")
        name = escape(_printable(self.name))
        head = f'<svg class="plot" viewBox="0 0 {_WIDTH} {whole}" role="img" aria-label="{name}">'
        return f"{head}\n<title>{name}</title>\n{body}\n</svg>"

    def _lay_out(self) -> int:
        """The legend's keys side by side as far as they fit, the axes below them; the height of the whole."""
        from matplotlib.lines import Line2D

        lines: list[list[Line2D]] = []
        free = 0
        for name, style in self.keys.items():
            room = 41 + 7 * len(name)  # a handle, the distance to the next, and an average character
            if room > free:
                lines.append([])
                free = _WIDTH + 12
            lines[-1].append(Line2D([], [], label=name, **style))
            free -= room
        above = _LEGEND_LINE * len(lines) + (30 if self.axes.get_title("left") else 8)
        whole = round(above + self.height + _BELOW)
        self.figure.set_size_inches(_WIDTH / 72, whole / 72)
        self.axes.set_position((self.left / _WIDTH, _BELOW / whole, self.width / _WIDTH, self.height / whole))
        for place, line in enumerate(lines):
            corner = (2 / _WIDTH, 1 - (_LEGEND_LINE * place + 4) / whole)
            self.figure.legend(handles=line, loc="upper left", bbox_to_anchor=corner, ncols=len(line))
        return whole


def tell(artists: Sequence[Any], *words: str) -> None:
    """What the shapes of each artist say under the pointer, one after the other."""
    for artist in artists:
        artist.set_gid("told:" + "\n".join(escape(" ".join(_printable(told).split())) for told in words))


def _titled(group: re.Match[str]) -> str:
    words = iter(unescape(group[1]).split("\n"))  # matplotlib has escaped what was escaped
    return re.sub("/>", lambda _: f"><title>{next(words, '')}</title></path>", group[2])


def _plain(tag: re.Match[str]) -> str:
    return re.sub("#[0-9a-f]{6}", lambda colour: _VARIABLES.get(colour[0], colour[0]), re.sub(_NOT_NEEDED, "", tag[0]))


def _number(tick: float, _: int | None = None, sign: str = "") -> str:
    return f"{tick:{sign}g}" if abs(tick) > 1e-9 else "0"


def _printable(words: str) -> str:
    """Without the characters that XML forbids."""
    return re.sub("[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", words)


def drawn(draw: Callable[P, Chart | None]) -> Callable[P, str]:
    """For a function that draws: the SVG of its chart, or "". plots.mplstyle alone, whatever the user's own says."""

    @wraps(draw)
    def svg(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            import matplotlib.style
        except ImportError:
            raise ConfigError(f"plots need matplotlib: {how_to_install('report')}") from None
        # a glyph may be missing where it is measured, which says nothing of where it is read
        ignored = warnings.catch_warnings(action="ignore", category=UserWarning)
        with ignored, matplotlib.style.context(["default", "onesdaug.report.plots"]):
            chart = draw(*args, **kwargs)
            return "" if chart is None else chart.svg()

    return svg


def standalone(svg: str) -> str:
    """The same as a file of its own: the light colours, on white."""
    svg = re.sub(r"var\(--(\w+)\)", lambda name: COLOURS[name[1]], svg)
    namespace, style = "http://www.w3.org/2000/svg", "background: white; font-family: sans-serif"
    return svg.replace("<svg ", f'<svg xmlns="{namespace}" style="{style}" ', 1) + "\n"
