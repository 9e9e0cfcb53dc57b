"""Single calls of an op: kept in files, made small, and written as a test of the engine alone."""
