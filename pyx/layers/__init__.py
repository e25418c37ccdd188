"""The kinds of layers: mixers (mix_*) and feed-forward parts (feed_*), and what mixers share."""
