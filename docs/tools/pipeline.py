"""`python docs/tools/pipeline.py` draws docs/pipeline.svg: a photograph becomes two views, in its real stages."""

from __future__ import annotations

import base64
import io
from itertools import pairwise
from pathlib import Path

from PIL import Image

from onesdaug import Augmenter
from onesdaug.augment.batch import Row
from onesdaug.data.samples import sample_photographs

FILE = Path(__file__).parents[1] / "pipeline.svg"
SIDE, WIDTH, HEIGHT = 150, 860, 616
COLUMNS = (20, 250, 475, 690)  # left edges: the photograph, then the stages
ROWS = (60, 270)  # top edges: the two views
STEPS = ("1 shape tweak", "2 noise", "3 denoise")


def picture(image: Image.Image, x: int, y: int) -> str:
    data = io.BytesIO()
    image.resize((2 * SIDE, 2 * SIDE)).save(data, "JPEG", quality=82)
    code = base64.b64encode(data.getvalue()).decode()
    return f'<image x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" href="data:image/jpeg;base64,{code}"/>'


def text(words: str, x: int, y: int, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="middle" font-weight="{weight}">{words}</text>'


def arrow(*points: tuple[int, int]) -> str:
    return f'<path d="M{" L".join(f"{x} {y}" for x, y in points)}" class="arrow" marker-end="url(#head)"/>'


def box(words: str, x: int, y: int, width: int) -> str:
    frame = f'<rect x="{x}" y="{y}" width="{width}" height="44" rx="8" class="box"/>'
    return frame + text(words, x + width // 2, y + 28)


def drawn() -> str:
    photo = sample_photographs(["chelsea"])["chelsea"].crop((75, 0, 375, 300))
    made = Augmenter.from_pretrained("pocket").run([Row(photo, k) for k in (1, 2)], tweaked=True, noised=True)
    middle = (ROWS[0] + ROWS[1] + SIDE) // 2
    left, half = COLUMNS[0] + SIDE, SIDE // 2
    parts = [picture(photo, COLUMNS[0], middle - half), text("the photograph", COLUMNS[0] + half, middle - half - 14)]
    parts += [text(name, x + half, ROWS[0] - 20, "bold") for name, x in zip(STEPS, COLUMNS[1:], strict=True)]
    for view, top in zip(made, ROWS, strict=True):
        level = top + half
        parts.append(arrow((left + 6, middle), (left + 28, middle), (left + 28, level), (COLUMNS[1] - 8, level)))
        for image, x in zip((view.tweaked, view.noised, view.image), COLUMNS[1:], strict=True):
            parts.append(picture(image, x, top))
        for x, following in pairwise(COLUMNS[1:]):
            parts.append(arrow((x + SIDE + 8, level), (following - 8, level)))
    between = (ROWS[0] + SIDE + ROWS[1]) // 2
    told = COLUMNS[2] + SIDE + 34
    parts.append(arrow((left + 28, middle), (told, middle), (told, ROWS[0] + half + 12)))
    parts.append(arrow((told, middle), (told, ROWS[1] + half - 12)))
    parts.append(text("the denoiser looks at the original", COLUMNS[1] + 190, between - 10))
    low = ROWS[1] + SIDE + 12
    model, answer = low + 44, HEIGHT - 54
    parts.append(arrow((COLUMNS[0] + half, middle + half + 8), (COLUMNS[0] + half, model - 8)))
    parts.append(arrow((COLUMNS[3] + half, low - 4), (COLUMNS[3] + half, model - 8)))
    parts += [box("your frozen model", COLUMNS[0], model, WIDTH - 40)]
    parts += [arrow((x, model + 50), (x, answer - 6)) for x in (COLUMNS[0] + half, COLUMNS[3] + half)]
    parts += [box("½ · its output for the photograph + ½ · the mean over the views", COLUMNS[0], answer, WIDTH - 40)]
    return "\n".join(parts)


STYLE = """<style>text{font:22px system-ui,sans-serif;fill:#334155}.arrow{fill:none;stroke:#0f766e;stroke-width:2.500}
.box{fill:#ccfbf1;stroke:#0f766e;stroke-width:1.500}</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#0f766e"/></marker></defs>
<rect width="100%" height="100%" rx="8" fill="#fff"/>"""

if __name__ == "__main__":
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    FILE.write_text(f"{head}\n{STYLE}\n{drawn()}\n</svg>\n", encoding="utf-8")
