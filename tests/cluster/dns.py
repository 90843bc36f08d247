"""Names as a cluster has them: each stands for the addresses of the pods behind it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dnslib import QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSLogger, DNSServer

from cluster.network import GATEWAY

ZONE = "shaperouter.svc.cluster.local"

# What a kubelet writes for pods of the namespace `shaperouter`.
RESOLV_CONF = f"""\
search {ZONE} svc.cluster.local cluster.local
nameserver {GATEWAY}
options ndots:5
"""

# Seconds that an answer may be cached, CoreDNS' default.
TTL = 5


class Names(BaseResolver):
    """What DNS answers; any thread may change it."""

    def __init__(self) -> None:
        """Knows no name."""
        self._addresses: dict[str, tuple[str, ...]] = {}

    def set(self, service: str, addresses: Iterable[str]) -> None:
        """Sets the addresses of a service's name."""
        self._addresses[f"{service}.{ZONE}"] = tuple(addresses)

    def resolve(self, request: DNSRecord, handler: object) -> DNSRecord:
        """Answers a question with all addresses, in another order each time."""
        reply = request.reply()
        addresses = self._addresses.get(str(request.q.qname).rstrip(".").lower(), ())
        if not addresses:
            reply.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype == QTYPE.A:
            for address in random.sample(addresses, len(addresses)):
                reply.add_answer(RR(request.q.qname, QTYPE.A, rdata=A(address), ttl=TTL))
        return reply


@contextmanager
def serving(names: Names) -> Iterator[None]:
    """Answers the questions of all hosts inside of the context."""
    servers = [
        DNSServer(names, address=GATEWAY, port=53, tcp=tcp, logger=DNSLogger("error"))
        for tcp in (False, True)
    ]
    for server in servers:
        server.start_thread()
    try:
        yield
    finally:
        for server in servers:
            server.stop()
