# SPDX-License-Identifier: Apache-2.0
"""``python -m hpc`` and the console script ``hpc``."""

import os
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
    code = run(sys.argv[1:])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:  # a full disk or a closed pipe: what is left goes nowhere, without a traceback at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or 2
    return code


if __name__ == "__main__":
    sys.exit(main())
