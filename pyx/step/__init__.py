"""One step of the model: its stages, its working memory, what can be observed."""
