"""Views in shards, Parquet or WebDataset, which the workers write themselves: nothing passes through one machine.

Beside each shard lies its part of the manifest, written first: lines without their shard are work to be redone. A
shard is written whole or not at all, and holds nothing that differs from run to run, so the same job gives the same
bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from onesdaug.common.progress import log, progress
from onesdaug.errors import OnesdaugError
from onesdaug.jobs.archives import store_of
from onesdaug.jobs.draw import completed
from onesdaug.jobs.ledger import JobReport
from onesdaug.jobs.plan import Listing
from onesdaug.jobs.survey import JobSettings
from onesdaug.scale.batch import DIED, About, Loader, Outcome, Share, Worker, planned
from onesdaug.scale.spread import RayOptions, Spread, connected, in_process

Kind = Literal["parquet", "webdataset"]
_ENDING = {"parquet": "parquet", "webdataset": "tar"}
_CHANGING = ("seconds", "peak_memory_mb")  # from run to run; they stand in the manifest alone
_WHOLE_WRITES = ("s3", "gcs")  # stores in which a file appears only when it is closed


@dataclass(frozen=True)
class Shard:
    """The batches whose views go into one file."""

    number: int
    batches: tuple[tuple[Share, ...], ...]

    @property
    def name(self) -> str:
        return f"views-{self.number:06d}"

    def alone(self) -> list[Shard]:
        """A shard is written as a whole: it cannot be cut further."""
        return [self]


class ShardWorker(Worker):
    """Draws shards and puts them where they belong."""

    def __init__(self, load: Loader, settings: JobSettings, out: str, kind: Kind) -> None:
        super().__init__(load, settings)
        self.kind = kind
        self.store, self.base = store_of(out)
        self.store.create_dir(self.base, recursive=True)

    def __call__(self, shard: Shard) -> Outcome:  # type: ignore[override]
        """Only the counts come back; the views are in the store."""
        outcome = Outcome()
        batches = [self.look(batch, outcome) for batch in shard.batches]
        wanted = {row.item.view(row.k): row.key for rows in batches for row in rows}
        file, lines = f"{shard.name}.{_ENDING[self.kind]}", f"{shard.name}.jsonl"
        there = {row["view"]: row["key"] for row in self._recorded(lines, file) if row["status"] == "ok"}
        if there and wanted.items() <= there.items():
            return Outcome(skipped=len(wanted), failed=outcome.failed)
        if self._size(file) is not None and not self._ours(there, wanted) and not self.settings.overwrite:
            why = f"{file} was left as it is: it holds something else (other settings); --overwrite replaces it"
            sources = dict.fromkeys(share.item.source for batch in shard.batches for share in batch)
            return Outcome(failed=[(source, why, self.settings.k) for source in sources])
        for rows in batches:
            if rows:
                self.draw(rows, outcome)
        made = [
            (
                completed(row, {field: hashlib.sha256(data).hexdigest() for field, (_, data) in files.items()}, {}),
                files,
            )
            for row, files in outcome.made
        ]
        data = (parquet_bytes if self.kind == "parquet" else tar_bytes)(made)
        recorded: list[dict[str, Any]] = [{**row, "shard": file, "shard_bytes": len(data)} for row, _ in made]
        recorded += [{"key": None, "status": "error", "source": s, "reason": why} for s, why, _ in outcome.failed]
        self._write(lines, b"".join(json.dumps(row).encode() + b"\n" for row in recorded))
        if made:
            self._write(file, data)
        return Outcome([(row, {}) for row, _ in made], 0, outcome.failed, outcome.notes)

    def _ours(self, there: dict[str, str], wanted: dict[str, str]) -> bool:
        """Whether all that is there is right, only not complete."""
        return bool(there) and all(wanted.get(view) == key for view, key in there.items())

    def _recorded(self, lines: str, file: str) -> Iterator[dict[str, Any]]:
        """The lines of a shard that is there as they describe it."""
        if (size := self._size(file)) is None or self._size(lines) is None:
            return
        with self.store.open_input_file(f"{self.base}/{lines}") as found:
            for line in found.read().splitlines():
                row = json.loads(line)
                if row.get("shard_bytes", size) == size:
                    yield row

    def _size(self, name: str) -> int | None:
        info = self.store.get_file_info(f"{self.base}/{name}")
        return info.size if info.is_file else None

    def _write(self, name: str, data: bytes) -> None:
        target = f"{self.base}/{name}"
        written = target if self.store.type_name in _WHOLE_WRITES else f"{target}.tmp"
        with self.store.open_output_stream(written) as file:
            file.write(data)
        if written != target:
            self.store.move(written, target)


Made = Sequence[tuple[dict[str, Any], dict[str, tuple[str, bytes]]]]


def parquet_bytes(made: Made) -> bytes:
    """One row per view: what it is called, what it was made of, and its PNG."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [
        {name: row[name] for name in ("key", "view", "source", "digest", "k", "seed", "sha256")}
        | {"image": files["sha256"][1], "about": json.dumps(_lasting(row))}
        | ({"tweak": files["tweak_sha256"][1]} if "tweak_sha256" in files else {})
        for row, files in made
    ]
    kinds = {"k": pa.int64(), "seed": pa.int64(), "image": pa.binary(), "tweak": pa.binary()}
    names = list(rows[0]) if rows else []
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema), buffer, row_group_size=64, compression="none")
    return buffer.getvalue()


def tar_bytes(made: Made) -> bytes:
    """WebDataset: for each view key.png and key.json, and key.tweak.png where it was asked for."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for row, files in made:
            folder, _, name = row["view"].removesuffix(".png").rpartition("/")
            key = f"{folder}/{name.replace('.', '_')}".lstrip("/")  # what follows the first dot is the member's kind
            parts = {"png": files["sha256"][1], "json": json.dumps(_lasting(row)).encode()}
            if "tweak_sha256" in files:
                parts["tweak.png"] = files["tweak_sha256"][1]
            for ending, data in parts.items():
                info = tarfile.TarInfo(f"{key}.{ending}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _lasting(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _CHANGING}


def run_shards(
    load: Loader, listing: Listing, settings: JobSettings, out: str, kind: Kind, views: int,
    options: RayOptions, device: str, told: Callable[[About], None] = lambda _: None,
) -> tuple[JobReport, About]:  # fmt: skip
    """The views of all listed inputs as shards of about so many views; on a cluster if one is named, else here."""
    start = time.perf_counter()

    def shards(about: About) -> list[Shard]:
        batches = planned(listing.items, settings.k, about.batch_size)
        each = max(1, views // about.batch_size)
        cuts = range(0, len(batches), each)
        return [Shard(n, tuple(map(tuple, batches[cut : cut + each]))) for n, cut in enumerate(cuts)]

    make = partial(ShardWorker, load, settings, out, kind)
    if options.ray is None:
        about = About.of(load)
        told(about)
        report = _counted(in_process(make, shards(about)), listing, settings)
    else:
        with connected(options) as ray:
            spread: Spread[Shard, Outcome] = Spread(ray, options, device)
            about = spread.ask(partial(About.of, load))
            told(about)
            report = _counted(spread.run(make, shards(about), Shard.alone, about.overlap), listing, settings)
    report.seconds = time.perf_counter() - start
    return report, about


def _counted(results: Iterator[tuple[Shard, Outcome | None]], listing: Listing, settings: JobSettings) -> JobReport:
    report = JobReport(failures=dict(listing.problems))
    for source, note in listing.notes:
        log.info(f"{source}: {note}")
    with progress(len(listing.items) * settings.k, "views", parts=1) as bar:
        try:
            for shard, found in results:
                shares = [share for batch in shard.batches for share in batch]
                outcome = found or Outcome(failed=[(s.item.source, DIED, len(s.numbers)) for s in shares])
                report.made += len(outcome.made)
                report.skipped += outcome.skipped
                for source, reason, _ in outcome.failed:
                    report.failures.setdefault(source, reason)
                failed = sum(views for _, _, views in outcome.failed)
                bar.advance(len(outcome.made), skipped=outcome.skipped + failed)
        except KeyboardInterrupt:
            report.interrupted = True
        except OSError as error:
            raise OnesdaugError(
                f"stopped, a shard could not be written: {error}. All finished ones are kept; put that right and run "
                "the same command again to go on"
            ) from error
    return report
