"""``python -m peer_tests``."""

from peer_tests import main

main()
