"""Many engines in one job: a matrix of engines, platforms and suites, on this machine or on a cluster.

`file` reads FLEET.toml into a `plan`; `driver` hands out its cases to an executor and writes one results file per
cell; `node` runs where the cases run: it makes the cell's environment, and starts `piece` there.
"""
