"""``python -m verispec`` is the ``verispec`` command."""

from verispec.cli import main

if __name__ == "__main__":
    main()
