"""Reports of runs and static checks, rendered from their records only."""
