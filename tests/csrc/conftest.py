"""Make the modules of this folder importable by name, and the cases of every op."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "triton"))
