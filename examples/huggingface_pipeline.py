"""A Hugging Face classifier over views: `python examples/huggingface_pipeline.py google/vit-base-patch16-224 cat.jpg`.

The model is a hub id that is in your cache, or a folder. It stays as it is; its probabilities for each picture and for
the picture's views are averaged, half of the weight on the picture.
"""

from __future__ import annotations

import argparse

from transformers import pipeline

from onesdaug import Augmenter, TestTimeEnsemble


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="an image-classification model: a hub id or a folder")
    parser.add_argument("pictures", nargs="+", help="image files")
    parser.add_argument("--generator", default="pocket", help="what draws the views")
    parser.add_argument("--k", type=int, default=2, help="views of each picture")
    given = parser.parse_args()

    classifier = pipeline("image-classification", given.model)
    model = TestTimeEnsemble(classifier, Augmenter.from_pretrained(given.generator), k=given.k)
    names = model.classes_
    found = model(given.pictures, return_details=True)
    for path, alone, together in zip(given.pictures, found.per_view[:, 0], found.output, strict=True):
        before, after = int(alone.argmax()), int(together.argmax())
        print(
            f"{path}: {names[before]} ({alone[before]:.0%}) alone, {names[after]} ({together[after]:.0%}) over views"
        )


if __name__ == "__main__":
    main()
