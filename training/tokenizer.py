"""The tokenizer: byte-level BPE with the split pattern of Llama 3, so the engine needs no second kind.

``python -m training.tokenizer FILE`` trains it on the training split and on what training.turns prints.  Bytes are its
alphabet, so nothing is unknown to it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training import corpus
from training.data import Dialogue

BOS, EOT, END = "<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>"  # ids 0, 1, 2
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip
#: dialogues read of each source: enough for 4096 words, and an endless one has to end somewhere
_DIALOGUES = 30_000


def train(dialogues: Iterable[Dialogue], n_vocab: int = 4096) -> Tokenizer:
    """A tokenizer of ``n_vocab`` tokens; the words of the chat template are in its text and become whole."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True, normalized=False) for text in (BOS, EOT, END)]
    trainer = trainers.BpeTrainer(vocab_size=n_vocab, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    texts = (f"{role.capitalize()}: {text.strip()}" for dialogue in dialogues for role, text in dialogue)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _training_text(seed: int) -> Iterator[Dialogue]:
    for source in corpus.SOURCES:
        yield from itertools.islice(corpus.dialogues(source, "train", seed), _DIALOGUES)


def main() -> None:
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    train(_training_text(seed=0)).save(str(path))


if __name__ == "__main__":
    main()
