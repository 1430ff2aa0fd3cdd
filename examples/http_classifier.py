"""A classifier behind HTTP over views: `python examples/http_classifier.py http://localhost:8080/classify cat.jpg`.

All it takes is a function from pictures to probabilities. This one posts each picture as PNG and expects JSON such as
{"cat": 0.9, "dog": 0.1}; change `ask` to what your service speaks.
"""

from __future__ import annotations

import argparse
import io
import json
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

from PIL import Image

from onesdaug import Augmenter, TestTimeEnsemble


class Remote:
    """Posts pictures, a few at once; the names of the classes are those of the first answer."""

    def __init__(self, url: str, timeout: float = 30) -> None:
        self.url, self.timeout = url, timeout
        self.names: list[str] = []

    def ask(self, picture: Image.Image) -> dict[str, float]:
        body = io.BytesIO()
        picture.save(body, "PNG")
        request = Request(self.url, body.getvalue(), {"Content-Type": "image/png"})
        with urlopen(request, timeout=self.timeout) as answer:
            return json.load(answer)

    def __call__(self, pictures: list[Image.Image]) -> list[list[float]]:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(self.ask, pictures))
        self.names = self.names or sorted(answers[0])
        return [[answer[name] for name in self.names] for answer in answers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="where pictures are posted to")
    parser.add_argument("pictures", nargs="+", help="image files")
    parser.add_argument("--generator", default="pocket", help="what draws the views")
    parser.add_argument("--k", type=int, default=2, help="views of each picture, each a request of its own")
    given = parser.parse_args()

    remote = Remote(given.url)
    model = TestTimeEnsemble(
        remote, Augmenter.from_pretrained(given.generator), k=given.k, combine="probs", input="pil"
    )
    for path, probabilities in zip(given.pictures, model(given.pictures), strict=True):
        best = int(probabilities.argmax())
        print(f"{path}: {remote.names[best]} ({probabilities[best]:.0%})")


if __name__ == "__main__":
    main()
