"""A scikit-learn model over views: `python examples/sklearn_model.py pets --views crop-flip`.

`pets` is a folder of pictures per class. Half of the pictures train a logistic regression on colours, the others are
asked about: by the model alone, and by the same model over each picture and its views.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onesdaug import Augmenter, TestTimeEnsemble
from onesdaug.ensemble.traditional import CropFlip


def colours(picture: Image.Image) -> np.ndarray:
    """What the model looks at: the picture as 4 × 4 coloured squares. Put your own features here."""
    return np.asarray(picture.convert("RGB").resize((4, 4), Image.Resampling.BOX), dtype=np.float32).ravel() / 255


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder with one folder of pictures for each class")
    parser.add_argument("--views", default="pocket", help="a generator, or crop-flip")
    parser.add_argument("--k", type=int, default=2, help="views of each picture")
    given = parser.parse_args()

    paths = sorted(str(path) for path in given.folder.glob("*/*") if path.is_file())
    labels = [Path(path).parent.name for path in paths]
    if len(set(labels)) < 2:
        parser.error(f"{given.folder} has no two folders of pictures")
    train, test, known, wanted = train_test_split(paths, labels, test_size=0.5, stratify=labels, random_state=0)

    source = CropFlip() if given.views == "crop-flip" else Augmenter.from_pretrained(given.views)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    over_views = TestTimeEnsemble(model, source, k=given.k, preprocess=colours)
    over_views.fit(train, known)  # on the pictures themselves; views are for predicting
    alone = over_views.set_params(k=0).score(test, wanted)
    print(f"the model alone:        {alone:.1%} of {len(test)} pictures")
    print(f"over {given.k} views of each:  {over_views.set_params(k=given.k).score(test, wanted):.1%}")


if __name__ == "__main__":
    main()
