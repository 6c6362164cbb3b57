"""Clients with a context of OpenSSL each, in a dict; and a dict of the few distinct values of many strings."""

import ssl
import sys


class Client:
    def __init__(self):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


clients = {n: Client() for n in range(int(sys.argv[1]))}
rows = ["".join(["value-", str(n % 5)]) for n in range(int(sys.argv[2]))]
print(flush=True)
sys.stdin.readline()
