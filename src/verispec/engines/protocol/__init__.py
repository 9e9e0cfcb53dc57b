"""The protocol of an engine: `engine` as a whole, `sampling` for samplers, `generation` for generators.

`check` tests an engine before its first case, and `results` each value that it returns.
"""
