"""`make demo`: views of sample photographs (or of IMAGES=...), with a contact sheet.

Uses Stable Diffusion 1.5 + IP-Adapter when their weights are on this machine; otherwise it says how to get them and
shows what needs no weights, the shape tweak alone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from onesdaug.errors import WeightsMissing
from onesdaug.generators import ip_adapter, stable_diffusion
from onesdaug.generators.weights import find

OUT = Path("demo-output")


def sample_photographs() -> list[str]:
    """Three photographs that come with scikit-image (public domain and CC0), no network needed."""
    import imageio.v3 as iio
    from skimage import data

    folder = OUT / "photos"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("astronaut", "chelsea", "coffee"):
        if not (folder / f"{name}.png").exists():
            iio.imwrite(folder / f"{name}.png", getattr(data, name)())
    return [str(folder)]


def model() -> str:
    """sd15 if it can run here, else shape."""
    try:
        find(stable_diffusion.REPO, stable_diffusion.PATTERNS, "Stable Diffusion")
        ip_adapter.locate(ip_adapter.REPO)
    except WeightsMissing as missing:
        print(f"{missing}\n\nUntil then: geometry only, the operator stopped after its first stage.\n")
        return "shape"
    return "sd15"


def main() -> int:
    images = sys.argv[1:] or sample_photographs()
    name = model()
    views = OUT / f"views-{name}"
    command = ["augment", *images, "-o", str(views), "--k", "4", "--preset", "paper-fast", "--model", name, "--sheet"]
    print(f"$ onesdaug {' '.join(command)}")
    return subprocess.call([sys.executable, "-m", "onesdaug", *command])


if __name__ == "__main__":
    sys.exit(main())
