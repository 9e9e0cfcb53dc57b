"""Proposers: where drafts come from. Each answers the small protocol in `protocol`."""
