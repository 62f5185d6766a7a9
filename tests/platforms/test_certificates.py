"""The certificate of a job: whom it is made out to, for how long, and what it is made from."""

from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

from elastic.platforms.certificates import make_certificate
from elastic.spec.values import CERTIFICATE_NAME


def read(certificate):
    return load_pem_x509_certificate(certificate.chain.encode())


def test_a_seed_makes_one_certificate_and_another_seed_another_key():
    made = make_certificate("a" * 64)
    assert make_certificate("a" * 64) == made
    other = make_certificate("b" * 64)
    assert other.key != made.key
    assert read(other).public_key() != read(made).public_key()


def test_it_is_signed_by_the_key_beside_it():
    made = make_certificate("a" * 64)
    certificate, key = read(made), load_pem_private_key(made.key.encode(), None)
    assert certificate.public_key() == key.public_key()
    certificate.verify_directly_issued_by(certificate)


def test_it_is_of_no_address_and_no_clock_makes_it_invalid():
    certificate = read(make_certificate("a" * 64))
    names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert names.get_values_for_type(DNSName) == [CERTIFICATE_NAME]
    # A node without a battery begins there.
    assert certificate.not_valid_before_utc <= datetime(1970, 1, 1, tzinfo=UTC)
    assert certificate.not_valid_after_utc.year == 9999


def test_its_key_is_in_no_text_that_is_made_of_it_by_chance():
    made = make_certificate("a" * 64)
    assert made.key.splitlines()[1] not in f"{made} {made!r}"
