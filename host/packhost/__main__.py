"""`python -m packhost`: the command line where no script was installed."""

from packhost.cli import main

if __name__ == "__main__":
    main()
