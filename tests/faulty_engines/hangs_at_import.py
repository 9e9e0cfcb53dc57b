"""A module that never ends its import."""

import time

while True:
    time.sleep(3600)
