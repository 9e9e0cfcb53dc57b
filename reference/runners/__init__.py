"""Runners: requests in, tokens out. `base` is what every platform shares; `cpu` and `gpu` are what differs."""
