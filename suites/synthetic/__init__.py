"""Synthetic acceptance: configured rates instead of probabilities, for speed measurements without a trained draft."""
