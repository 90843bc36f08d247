"""Hosts on this machine: a network namespace each, on one bridge.

They belong to the namespaces of the process that makes them (see __main__): nothing of them is on
the machine's own network, and all of them vanish with that process, however it ends.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Sequence

BRIDGE = "cluster"
# Of this process, and with it of DNS.
GATEWAY = "10.99.0.1"
PREFIX = 16

# States of a bridge's port: it forwards, or drops all that comes either way without a word.
_DISABLED, _FORWARDING = 0, 3


def run(command: str) -> None:
    """Runs a command of iproute2.

    Raises:
        subprocess.CalledProcessError: It failed; what it said is on standard error.
    """
    subprocess.run(command.split(), check=True)


class Host:
    """A host: what runs there has an address and a name of its own."""

    def __init__(self, name: str, address: str, link: str) -> None:
        """A host made by `Network.add`."""
        self.name = name
        self.address = address
        self._link = link

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line by which a command runs there, as the same process."""
        named = 'hostname "$0" && exec "$@"'
        enter = ["nsenter", f"--net=/run/netns/{self._link}", "unshare", "--uts"]
        return [*enter, "sh", "-c", named, self.name, *command]

    def cut(self) -> None:
        """Lets nothing reach the host or leave it, without a word to either side."""
        self._set_state(_DISABLED)

    def mend(self) -> None:
        """Ends what `cut` began."""
        self._set_state(_FORWARDING)

    def remove(self) -> None:
        """Removes the host from the network permanently."""
        run(f"ip link delete {self._link}")
        run(f"ip netns delete {self._link}")

    def _set_state(self, state: int) -> None:
        run(f"bridge link set dev {self._link} state {state}")


class Network:
    """A bridge, and the hosts on it. This process is on it, too."""

    def __init__(self) -> None:
        """Makes the bridge, which has one host: this process."""
        self._numbers = itertools.count(2)
        run("ip link set dev lo up")
        run(f"ip link add {BRIDGE} type bridge")
        run(f"ip address add {GATEWAY}/{PREFIX} dev {BRIDGE}")
        run(f"ip link set dev {BRIDGE} up")

    def add(self, name: str) -> Host:
        """Adds a host, at an address that none has had before, as pods have it."""
        number = next(self._numbers)
        address, link = f"10.99.{number // 256}.{number % 256}", f"host{number}"
        run(f"ip netns add {link}")
        run(f"ip link add {link} type veth peer name eth0 netns {link}")
        run(f"ip link set dev {link} master {BRIDGE} up")
        run(f"ip -netns {link} link set dev lo up")
        run(f"ip -netns {link} address add {address}/{PREFIX} dev eth0")
        run(f"ip -netns {link} link set dev eth0 up")
        return Host(name, address, link)
