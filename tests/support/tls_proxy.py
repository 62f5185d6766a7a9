"""Encrypts what a server without TLS says: a port in front of its port."""

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificate(folder, address="127.0.0.1"):
    """A certificate of this address that is signed by itself, and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "of a test")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, secret = folder / f"{address}.pem", folder / f"{address}.key"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, secret


@contextlib.contextmanager
def encrypting(port, chain, key):
    """Give the port that speaks TLS, and passes everything on to that one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=_accept, args=(listening, context, port), daemon=True)
        accepting.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    accepting.join()


def _accept(listening, context, port):
    while True:
        try:
            plain, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(plain, context, port), daemon=True).start()


def _serve(plain, context, port):
    """One connection, until either end closes it."""
    with plain, contextlib.suppress(OSError):
        # A client that does not like the certificate ends it here.
        outside = context.wrap_socket(plain, server_side=True)
        with outside, socket.create_connection(("127.0.0.1", port)) as inside:
            back = threading.Thread(target=_pass_on, args=(inside, outside), daemon=True)
            back.start()
            _pass_on(outside, inside)
            back.join()


def _pass_on(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
