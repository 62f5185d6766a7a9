"""CRC-32C as file formats store it."""

import crc32c


def crc32c_of(data: bytes) -> int:
    """The CRC-32C (Castagnoli) of some bytes."""
    crc: int = crc32c.crc32c(data)
    return crc


def masked_crc32c(data: bytes) -> int:
    """The same as TFRecord and Snappy frames store it: rotated, plus a constant.

    A checksum of data that holds checksums would else be of little use.
    """
    crc: int = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
