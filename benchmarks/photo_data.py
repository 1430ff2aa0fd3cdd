"""What `photo` and `pocket` are trained on, as zip files that a lent machine can be sent.

    python benchmarks/photo_data.py coco COCO.git -o data/coco --pope FOLDER     train2017, without POPE's pictures
    python benchmarks/photo_data.py tiny TINY.git -o data/tiny                   Tiny-ImageNet outside miniImageNet

Sources are git directories, which need no work tree: hai4h/cnn-edge-detection and rangeetpan/IMagenet; about ten
minutes. Every zip file holds a random part, as WebP. Then `h200_photo.py prepare --coco data/coco --tiny data/tiny`.
Nothing of it is committed.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from PIL import Image  # noqa: E402

from benchmarks.photo_carry import LARGEST  # noqa: E402
from onesdaug.generators.pocket.photo_table import NOVEL  # noqa: E402

FOLDERS = {"coco": "train2017", "tiny": "tiny-imagenet-200/train"}
QUALITY = {"coco": 65, "tiny": 80}
HEADERS = 160  # bytes that a zip file spends on a member beside its name, twice, and its content
File = tuple[str, str]  # the name it gets, and git's name of its content


def listed(source: Path, what: str, left_out: frozenset[str]) -> list[File]:
    """The pictures of the snapshot that may be learned from; photographs by their number, others in their class."""
    folder = f"HEAD:{FOLDERS[what]}"
    lines = subprocess.run(["git", f"--git-dir={source}", "ls-tree", "-r", folder], capture_output=True, check=True)
    files = []
    for line in lines.stdout.decode().splitlines():
        (_, _, content), path = line.split("\t")[0].split(), Path(line.split("\t")[1])
        key = path.stem if what == "coco" else path.parts[0]
        if path.suffix.lower() in (".jpg", ".jpeg") and key not in left_out:
            files.append((f"{path.stem}.webp" if what == "coco" else f"{key}/{path.stem}.webp", content))
    return files


def asked_about(folder: Path) -> frozenset[str]:
    """COCO's numbers of the pictures that POPE's questions are about."""
    lines = [line for file in sorted(folder.glob("*.json")) for line in file.read_text().splitlines() if line.strip()]
    return frozenset(json.loads(line)["image"].rpartition("_")[2].partition(".")[0] for line in lines)


def contents(source: Path, files: Sequence[File]) -> Iterator[tuple[str, bytes]]:
    with subprocess.Popen(
        ["git", f"--git-dir={source}", "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as git:
        assert git.stdin and git.stdout
        for name, content in files:
            git.stdin.write(f"{content}\n".encode())
            git.stdin.flush()
            size = int(git.stdout.readline().split()[2])
            yield name, git.stdout.read(size + 1)[:size]
        git.stdin.close()


def packed(source: Path, files: Sequence[File], start: str, quality: int, largest: int = LARGEST) -> int:
    """Zip files START00.zip, …, none larger than one call to a lent machine carries; how many."""
    count, room, archive = 0, 0, None
    for name, content in contents(source, files):
        small = io.BytesIO()
        Image.open(io.BytesIO(content)).convert("RGB").save(small, "WEBP", quality=quality, method=4)
        cost = small.tell() + 2 * len(name) + HEADERS
        if archive is None or cost > room:
            if archive is not None:
                archive.close()
            archive, count, room = zipfile.ZipFile(f"{start}{count:02d}.zip", "w"), count + 1, largest
        archive.writestr(name, small.getvalue())
        room -= cost
    if archive is not None:
        archive.close()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=sorted(FOLDERS))
    parser.add_argument("source", type=Path, help="a git directory")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--pope", type=Path, help="coco: the folder with POPE's questions (needed)")
    args = parser.parse_args()
    if args.what == "coco" and (args.pope is None or not asked_about(args.pope)):
        parser.error("coco needs --pope, a folder with POPE's questions (*.json): their pictures are left out")
    files = listed(args.source, args.what, NOVEL if args.what == "tiny" else asked_about(args.pope))
    random.Random(0).shuffle(files)
    args.output.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        made = [
            pool.submit(packed, args.source, files[i::2], f"{args.output}/{args.what}-{i}", QUALITY[args.what])
            for i in range(2)
        ]
        print(f"{len(files):,} pictures in {sum(one.result() for one in made)} zip files in {args.output}")


if __name__ == "__main__":
    main()
