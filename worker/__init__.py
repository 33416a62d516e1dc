"""One process, one set of models in memory."""
