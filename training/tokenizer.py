"""The tokenizer: byte-level BPE with the split pattern of Llama 3, which the engine runs for published models, too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.data import Dialogue, turns

#: control tokens in the order of their ids: begin a row, end a turn, end a dialogue
CONTROL = BOS, EOT, END = "<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>"
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(dialogues: Iterable[Dialogue], n_vocab: int) -> Tokenizer:
    """A tokenizer of ``n_vocab`` tokens; bytes are its alphabet, so nothing is unknown to it.

    It reads turns as the model will, with "User:" and "Assistant:" before them, so these words become whole tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.train_from_iterator((turn for dialogue in dialogues for turn in turns(dialogue)), trainer)
    return tokenizer


def load(path: Path) -> Tokenizer:
    """Read tokenizer.json; names of control tokens in a text are text."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return tokenizer
