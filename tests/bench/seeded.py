"""``python -m tests.bench.seeded SEED run ...``: this scheduler with a given seed, so that two runs can be compared."""

import secrets
import sys

from app.cli import main

if __name__ == "__main__":
    seed = int(sys.argv.pop(1))
    secrets.randbits = lambda _bits: seed
    main()
