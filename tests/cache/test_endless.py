"""S1: twenty thousand tokens through a window of 512: memory and work per token stay flat, and so does perplexity."""

from __future__ import annotations

import array
import json
import math
import random

import edge
from edge.formats import open_checkpoint
from edge.machine.linux import rss
from edge.model.weights import build
from lab import evaluate
from pyx.kv import KVCache
from pyx.step import Segment
from pyx.tokens import log_likelihoods
from tests.oracles.attention import PAGE

WINDOW, SINKS, CHUNK = 508, 4, 100


def test_twenty_thousand_tokens(tiny_model):
    checkpoint = open_checkpoint(tiny_model)
    config, model = checkpoint.config, build(checkpoint)
    plan = {"window": WINDOW, "sinks": SINKS, "spare": 1}
    cache = KVCache(*config.kv_shape, 512, "int8", **plan)
    logits = array.array("f", bytes(4 * config.n_vocab))
    rng = random.Random(1)
    text = [rng.randrange(config.n_vocab) for _ in range(20_000)]
    pages, memory = [], []
    for start in range(0, len(text), CHUNK):
        single = start % 1000 == 0  # mostly in chunks, to be quick; some one by one
        for at in range(start, start + CHUNK, 1 if single else CHUNK):
            model.step([Segment(cache, array.array("i", text[at : at + (1 if single else CHUNK)]), logits)])
        pages.append(max(len(cache.held(i, j)) for i in range(config.n_layer) for j in range(config.n_kv_head)))
        memory.append(rss()["anon"])
    assert all(abs(x) < 1e6 for x in logits)  # neither NaN nor infinite
    assert cache.n_tokens == 20_000 and cache.evicted == 20_000 + 1 - WINDOW - SINKS
    assert cache.pool.used <= cache.nbytes == cache.pool.nbytes
    assert memory[-1] - memory[20] <= 256 * 1024  # warm after 2000 tokens
    # what a token is compared with does not depend on how many there were
    assert max(pages) == max(pages[:10]) <= 512 // PAGE + 3


def test_perplexity_at_the_end_of_the_stream(bundled_model):
    """The last 1024 of 20,000 tokens, ten times what the model was trained on: not much worse than the same windows
    after a history of one or two windows only.  The sinks are further away than any token of a training text.
    """
    block = 128
    with edge.load(ctx=1024, threads=1) as engine:
        c, step, rng = engine.config, engine.model.transformer.step, random.Random(1)
        assert engine.tokenizer.bos_id is not None
        talks = [json.loads(line)["messages"] for line in evaluate.DIALOGUES.read_text().splitlines() if line.strip()]
        coded = [engine.template.encode(engine.tokenizer, talk, add_generation_prompt=False)[1:] for talk in talks]
        text = array.array("i", [engine.tokenizer.bos_id])
        while len(text) <= 20_000 + block:
            text.extend(rng.choice(coded))
        logits = array.array("f", bytes(4 * c.n_vocab * block))
        plan = {"window": WINDOW, "sinks": SINKS}
        starts = range(19_072, 19_072 + 1024, block)

        def loss(cache, at):
            step([Segment(cache, text[at : at + block], logits, all_logits=True)])
            return -sum(log_likelihoods(logits, text[at + 1 : at + block + 1], c.n_vocab)) / 1024

        def read(cache, ids):
            for at in range(0, len(ids), block):
                step([Segment(cache, ids[at : at + block])])

        def of(history):
            total = 0.0
            for at in starts:
                cache = KVCache(*c.kv_shape, 512, "int8", **plan)
                read(cache, text[:SINKS] + text[at - history : at])
                total += loss(cache, at)
            return total

        cache = KVCache(*c.kv_shape, 512, "int8", **plan)
        read(cache, text[: starts[0]])
        streamed = sum(loss(cache, at) for at in starts)
        assert cache.n_tokens == 20_096
    for windows in (1, 2):
        assert abs(math.expm1(streamed - of(windows * WINDOW))) < 0.1
