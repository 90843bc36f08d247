"""Exit codes of `shaperouterd`; sysexits.h defines the first two."""

# EX_SOFTWARE: a defect; the process should be started again.
EXIT_DEFECT = 70

# EX_CONFIG: starting again helps only after a change of configuration.
EXIT_CONFIG = 78

# Exit code after Ctrl-C, as shells report it: 128 plus the number of SIGINT.
EXIT_INTERRUPTED = 130
