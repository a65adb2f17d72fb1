# SPDX-License-Identifier: Apache-2.0
"""``python -m hpc`` and the console script ``hpc``."""

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        from hpc.cli import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "hpc"):
            raise
        print(f"hpc: error: the command needs {missing}: pip install 'hpctopk[cli]'", file=sys.stderr)
        return 2
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
