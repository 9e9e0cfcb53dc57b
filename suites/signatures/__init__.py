"""Runtime signatures: an engine's callables bind to the contract by name, order, default and flag."""
