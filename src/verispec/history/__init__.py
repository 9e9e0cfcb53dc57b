"""A history of runs: results files of many nights in one table, and the questions that maintainers ask of it.

`store` packs results files into Parquet, which grows by one file per call; `questions` asks DuckDB, which runs inside
this process. Paths may be of any file system that fsspec knows.
"""
