"""Synthetic acceptance: configured rates instead of probabilities, so that speed is measured without a good draft."""
