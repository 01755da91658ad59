"""`python -m packhost`: the command line where no script was installed."""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        # `-m` looks first in the folder where it is started: a workspace's files are no libraries of ours.
        del sys.path[0]
    from packhost.cli import main  # it imports libraries, which are looked for only now

    main()
