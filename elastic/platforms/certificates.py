"""Makes the certificate of a job. Pure: whoever submits the job brings what is random."""

import hashlib
from datetime import UTC, datetime
from typing import Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import (
    BasicConstraints,
    CertificateBuilder,
    DNSName,
    Name,
    NameAttribute,
    SubjectAlternativeName,
)
from cryptography.x509.oid import NameOID

from elastic.spec.values import CERTIFICATE_NAME, Certificate

_CURVE: Final = ec.SECP256R1()
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of that curve: private keys are the numbers from 1 to one below it."""

# It is trusted because it is this one, and goes with its job: dates could only be in the way, of
# nodes whose clocks are wrong and of jobs that take long.
_NOT_BEFORE: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_AFTER: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def make_certificate(seed: str) -> Certificate:
    """The certificate of a seed; the same seed gives the same one.

    Args:
        seed: 64 hexadecimal digits that nobody can guess, and that nothing else is made from.
    """
    key = ec.derive_private_key(_private_number(seed), _CURVE)
    name = Name([NameAttribute(NameOID.COMMON_NAME, CERTIFICATE_NAME)])
    certificate = (
        CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(SubjectAlternativeName([DNSName(CERTIFICATE_NAME)]), critical=False)
        .add_extension(BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = certificate.public_bytes(serialization.Encoding.PEM)
    return Certificate(chain.decode(), private.decode())


def _private_number(seed: str) -> int:
    """Twice as many bits as the order has, so that no number is likelier than another.

    Source:
        FIPS 186-5, A.2.1.
    """
    return int.from_bytes(hashlib.sha512(seed.encode()).digest(), "big") % (_ORDER - 1) + 1
