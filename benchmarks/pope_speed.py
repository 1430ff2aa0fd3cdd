"""Seconds and memory of one POPE question on this machine: LLaVA-1.5-7B's shapes, random weights, no download.

    python benchmarks/pope_speed.py -o benchmarks/results/pope-speed.json        (--tiny: the same path in seconds)

Answers of random weights mean nothing; what they cost is what the real ones would cost.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402

QUESTION = "Is there a snowboard in the image?"
WORDS = ["<unk>", "<s>", "</s>", "<pad>", "<image>", "▁USER", "▁ASSISTANT", "▁Yes", "▁No", ":", "?", "."]


def processor(side: int) -> Any:
    """LLaVA's own processor class over a word list: as many tokens as the real one makes, give or take a few."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlavaProcessor, PreTrainedTokenizerFast

    try:
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil as Pictures
    except ImportError:
        from transformers import CLIPImageProcessor as Pictures
    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(r"[:?.]"), "isolated")]
    )
    tokens.decoder = decoders.Metaspace()
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, **special, additional_special_tokens=["<image>"])
    return LlavaProcessor(
        image_processor=Pictures(size={"shortest_edge": side}, crop_size={"height": side, "width": side}),
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def llava(tiny: bool, device: torch.device) -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    vision = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
    text = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
    if tiny:
        vision = text = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision, image_size=336, patch_size=14),
        text_config=LlamaConfig(**text, vocab_size=32064, bos_token_id=1, eos_token_id=2, pad_token_id=3),
        image_token_id=WORDS.index("<image>"),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            model = LlavaForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False)


def table(record: dict[str, Any]) -> str:
    """The document's table of a stored run."""
    lines = ["| K | VCD | seconds a question | 3,000 questions | peak memory |", "|---|---|---|---|---|"]
    for row in record["rows"]:
        vcd, memory = "with" if row["vcd"] else "without", f"{row['peak_memory_gib']:.1f} GiB"
        taken = f"{row['seconds_per_question']:.3f} | {row['minutes_for_3000']:.0f} minutes"
        lines.append(f"| {row['k']} | {vcd} | {taken} | {memory} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--questions", type=int, default=12)
    args = parser.parse_args()

    from onesdaug.common.provenance import commit, describe_machine
    from onesdaug.vlm.local import LocalModel
    from onesdaug.vlm.settings import Asking, Contrast

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, reader = llava(args.tiny, device), processor(336)
    count = sum(p.numel() for p in model.parameters())
    pixels = np.random.default_rng(0).integers(0, 256, (5, 480, 640, 3), dtype=np.uint8)  # COCO's usual size
    pictures = [Image.fromarray(p) for p in pixels]
    rows = []
    for vcd in (None, Contrast()):
        asker = LocalModel(model, reader, Asking(), vcd, prompt="llava")
        for k in (0, 2, 4):
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            taken = []
            for number in range(args.questions + 1):
                began = time.perf_counter()
                asker.ask(pictures[: k + 1], QUESTION, f"q{number}")  # answers come to the host: nothing is pending
                taken.append(time.perf_counter() - began)
            seconds = median(taken[1:])  # the first one warms up
            peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
            rows.append({"k": k, "vcd": vcd is not None, "seconds_per_question": round(seconds, 4),
                         "minutes_for_3000": round(seconds * 50, 1),
                         "peak_memory_gib": None if peak is None else round(peak, 2)})  # fmt: skip
            print(rows[-1], flush=True)
    record = {
        "what": "one POPE question, LLaVA-1.5-7B shapes, random weights, bfloat16, 480x640, greedy and sampled",
        "command": "python benchmarks/pope_speed.py",
        "commit": commit(),
        "machine": describe_machine(device),
        "parameters": count,
        "rows": rows,
    }
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
