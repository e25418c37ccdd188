"""Tables about models: families, published shapes, the library of models by name; no code that runs a model."""
