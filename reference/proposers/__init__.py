"""Proposers: sources of draft tokens. Each implements the protocol in `protocol`."""
