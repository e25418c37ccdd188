"""The output head: its types, exact largest logits from few bits."""
