"""Reports: what people and machines read about a run or a tree, rendered from its findings and nothing else."""
