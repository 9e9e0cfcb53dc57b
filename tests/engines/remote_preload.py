"""Imported once by the process that others are forked from."""

import os

PID = os.getpid()
os.environ["TOLD"] = "yes"
