"""`python -m sa_jobqueue` is the command `sa-jobqueue`."""

from sa_jobqueue.cli import main

if __name__ == "__main__":
    main()
