"""Protocols of an engine: `engine` the whole, `sampling` samplers, `generation` generators; `check` tests it."""
