"""Faults made by machine, run against the cases that reach them, to measure the share that the suites catch.

``verispec mutants`` makes small faults in a layer of the reference engine, runs the cases that reach each fault, and
scores the suites. The stages, one module each:

* `operators_cpp` and `operators_python` list the faults of a source file, by `cpp_sites` and `python_alternatives`;
* `schemata` builds all faults of the C++ kernels into one extension, selected by number at run time;
* `layers` lists the files, suites and engine of each layer;
* `plugin` is the pytest side: it records which case reaches which fault, and runs faults in forked processes;
* `campaign` samples, resumes and writes JSON lines; `score` classifies; `rendering` prints.
"""
