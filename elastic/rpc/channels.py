"""Connections and ports: encrypted where the job has a certificate, in clear where it has none.

Who calls trusts the job's own certificate and no other, by a fixed name. Who it is that
calls is told by the token alone.
"""

from typing import Final

import grpc

from elastic.rpc.wire import FRAME_BYTES
from elastic.spec.certificate import CERTIFICATE_NAME, Certificate

CHANNEL_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.http2.max_frame_size", FRAME_BYTES),
    ("grpc.keepalive_time_ms", 20_000),
    # Two channels share no connection: a new one is to reach whoever has the address by now.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # retried by us, where the address is looked up again
)
_ENCRYPTED_OPTIONS: Final = (
    *CHANNEL_OPTIONS,
    ("grpc.ssl_target_name_override", CERTIFICATE_NAME),
)

_MISFITS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "who answers there shows another certificate than this job's: it "
    "belongs to another job, or to another submission of this one",
    "WRONG_VERSION_NUMBER": "who answers there speaks no TLS, as all processes of this job do: it "
    "is none of them, or a proxy stands before it; where the network encrypts by itself, submit "
    "the job with --no_tls",
}
"""BoringSSL's words for what no waiting mends, and ours."""


def open_channel(address: str, certificate: Certificate | None) -> grpc.Channel:
    """A channel to a process of the job; it connects when it is used."""
    if certificate is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(address, _trusted(certificate), options=_ENCRYPTED_OPTIONS)


def open_async_channel(address: str, certificate: Certificate | None) -> grpc.aio.Channel:
    """See `open_channel`."""
    if certificate is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, _trusted(certificate), options=_ENCRYPTED_OPTIONS)


def add_port(server: grpc.aio.Server, address: str, certificate: Certificate | None) -> int:
    """Have a server listen at `host:port`, 0 for a free port; returns the port.

    Raises:
        RuntimeError: The address is in use.
    """
    if certificate is None:
        return int(server.add_insecure_port(address))
    shown = (certificate.key.encode(), certificate.chain.encode())
    return int(server.add_secure_port(address, grpc.ssl_server_credentials([shown])))


def misfit(error: grpc.RpcError) -> str | None:
    """Why the two ends will never understand each other; None where that is not so.

    To gRPC a handshake that fails is a server that is away, which calls are patient with.
    """
    details = error.details() or ""
    return next((ours for theirs, ours in _MISFITS.items() if theirs in details), None)


def _trusted(certificate: Certificate) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(certificate.chain.encode())
