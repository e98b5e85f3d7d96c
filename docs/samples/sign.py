"""Sign a call in Python: python sign.py KEY.pem URL ID < command.json > signature.txt"""

import base64
import hashlib
import json
import sys
import time

from cryptography.hazmat.primitives.serialization import load_pem_private_key


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sign(key, body: bytes, method: str, url: str, id: str, now: int) -> str:
    x = base64url(key.public_key().public_bytes_raw())
    thumbprint = hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest()
    header = {
        "alg": "Ed25519",
        "b64": False,
        "crit": ["b64"],
        "htm": method,
        "htu": url,
        "iat": now,
        "jti": id,
        "kid": base64url(thumbprint),
    }
    protected = base64url(json.dumps(header, separators=(",", ":")).encode())
    return f"{protected}..{base64url(key.sign(protected.encode() + b'.' + body))}"


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        key = load_pem_private_key(file.read(), password=None)
    now = int(sys.argv[4]) if len(sys.argv) > 4 else int(time.time())
    print(sign(key, sys.stdin.buffer.read(), "POST", sys.argv[2], sys.argv[3], now))
