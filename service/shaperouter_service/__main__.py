"""Runs the `shaperouterd` command: `python -m shaperouter_service`."""

from shaperouter_service.cli import main

main()
