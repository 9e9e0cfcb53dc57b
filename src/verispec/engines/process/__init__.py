"""Run an engine in a process of its own: the server side and its proxy."""
