"""An authenticator for passkeys, with one key (WebAuthn level 3, ES256, no attestation). It uses only the standard library."""

import hashlib
import json
import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

# The user was present and verified, and a new key follows.
PRESENT, VERIFIED, ATTESTED = 1, 4, 64


# The curve P-256 (FIPS 186-4, D.1.2.3): field, order, and base point.
FIELD = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
BASE = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)


def add(one, other):
    """Adds two points; `None` is the point at infinity."""
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if one[1] != other[1]:
            return None
        slope = 3 * (one[0] ** 2 - 1) * pow(2 * one[1], -1, FIELD) % FIELD
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, FIELD) % FIELD
    x = (slope**2 - one[0] - other[0]) % FIELD
    return x, (slope * (one[0] - x) - one[1]) % FIELD


def times(number, point):
    result = None
    while number:
        if number & 1:
            result = add(result, point)
        point, number = add(point, point), number >> 1
    return result


def der(number):
    """Returns a positive integer in DER."""
    data = number.to_bytes(number.bit_length() // 8 + 1, "big")
    return b"\x02" + bytes([len(data)]) + data


def encode(data):
    return urlsafe_b64encode(data).decode().rstrip("=")


def decode(text):
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class SecurityKey:
    def __init__(self):
        self.key = secrets.randbelow(ORDER - 1) + 1
        self.credential_id = os.urandom(32)
        self.handle, self.count = b"", 0

    def make(self, options, origin):
        """Returns a browser's response after the creation of a passkey."""
        self.handle = decode(options["user"]["id"])
        # The public key in CBOR (RFC 9053): type EC2, algorithm ES256, curve P-256, x, y.
        public = b"\xa5\x01\x02\x03\x26\x20\x01"
        for label, number in zip([b"\x21", b"\x22"], times(self.key, BASE)):
            public += label + b"\x58\x20" + number.to_bytes(32, "big")
        data = self.data(options["rp"]["id"], ATTESTED) + bytes(16) + len(self.credential_id).to_bytes(2, "big")
        data += self.credential_id + public
        attestation = b"\xa3cfmtdnonegattStmt\xa0hauthData\x58" + bytes([len(data)]) + data
        return self.answer("webauthn.create", options, origin, {"attestationObject": encode(attestation)})

    def sign(self, options, origin):
        """Returns a browser's response with a signature."""
        self.count += 1
        client_data, data = self.client_data("webauthn.get", options, origin), self.data(options["rpId"], 0)
        signature = self.signature(data + hashlib.sha256(client_data).digest())
        return self.answer("webauthn.get", options, origin, {
            "authenticatorData": encode(data), "signature": encode(signature), "userHandle": encode(self.handle),
        })

    def signature(self, text):
        """Returns an ECDSA signature (FIPS 186-4, 6.4)."""
        once = secrets.randbelow(ORDER - 1) + 1
        first = times(once, BASE)[0] % ORDER
        digest = int.from_bytes(hashlib.sha256(text).digest(), "big")
        second = pow(once, -1, ORDER) * (digest + first * self.key) % ORDER
        numbers = der(first) + der(second)
        return b"\x30" + bytes([len(numbers)]) + numbers

    def data(self, host, flags):
        head = bytes([PRESENT | VERIFIED | flags])
        return hashlib.sha256(host.encode()).digest() + head + self.count.to_bytes(4, "big")

    def client_data(self, kind, options, origin):
        return json.dumps({"type": kind, "challenge": options["challenge"], "origin": origin, "crossOrigin": False}).encode()

    def answer(self, kind, options, origin, response):
        name = encode(self.credential_id)
        response = {"clientDataJSON": encode(self.client_data(kind, options, origin))} | response
        return {"id": name, "rawId": name, "type": "public-key", "clientExtensionResults": {}, "response": response}
