"""Trains the models in ``fixtures/`` from the sources of the Python that runs it.

One call does everything, in order: tokenizer, target, text that the target writes, draft model, Eagle3 head,
acceptance on held-back text, and the checkpoint folders with their provenance:

    python -m tools.train_fixtures --out DIR

Sizes and schedules are in `recipe`. On one H200 it takes about four minutes; ``--tiny`` runs the same code on a CPU in
less than one. A stage that would outlast its minutes takes fewer steps; provenance.json records the ``--steps`` taken.
A run on a CPU can be repeated bit for bit; on a GPU the backward pass of attention adds in no fixed order.
"""
