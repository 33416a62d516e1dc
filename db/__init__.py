"""What the client and the worker share: the vocabulary and the store. Knows no queue, no model, no terminal."""
