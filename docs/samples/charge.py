"""Makes signed charges with the client that openapi-python-client generated: charge.py URL KEY.pem BODY.json ID

The token is in TOKEN. Prints the state of the charge, and the code of the problem that a charge without a plan gets.
"""

import json
import os
import sys
import time
from pathlib import Path

import httpx
import sign
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from ledger_client import AuthenticatedClient
from ledger_client.api.accounts import list_charges, read_charge
from ledger_client.api.commands import quote_charge, submit_charge
from ledger_client.models import ChargeCommand, ProblemDetails
from ledger_client.models.list_charges_state import ListChargesState


class SignedBody(httpx.Auth):
    """Spells a command by RFC 8785 (it has no floats) and signs the bytes that are sent."""

    requires_request_body = True

    def __init__(self, key):
        self.key = key

    def auth_flow(self, request):
        if request.method == "POST":
            command = json.loads(request.content)
            body = json.dumps(command, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            url = str(request.url.copy_with(query=None))
            signature = sign.sign(self.key, body, "POST", url, command["id"], int(time.time()))
            request.stream = httpx.ByteStream(body)
            request.headers["content-length"] = str(len(body))
            request.headers["x-jws-signature"] = signature
        yield request


def main(url, key_file, body_file, name):
    key = load_pem_private_key(Path(key_file).read_bytes(), password=None)
    arguments = {"auth": SignedBody(key), "trust_env": False}
    client = AuthenticatedClient(
        base_url=url, token=os.environ["TOKEN"], timeout=httpx.Timeout(60), httpx_args=arguments
    )
    command = ChargeCommand.from_dict({**json.loads(Path(body_file).read_bytes()), "id": name})
    quoted = quote_charge.sync(client=client, body=command, x_jws_signature="")
    made = submit_charge.sync_detailed(client=client, body=command, x_jws_signature="")
    again = submit_charge.sync_detailed(client=client, body=command, x_jws_signature="")
    listed = list_charges.sync(client=client, state=ListChargesState.PENDING, limit=200)
    command.body.deadline = 1
    refused = submit_charge.sync(client=client, body=command, x_jws_signature="")
    assert isinstance(refused, ProblemDetails)
    found = {
        "quoted": quoted.outcome,
        "statuses": [made.status_code.value, again.status_code.value],
        "state": read_charge.sync(name, client=client).state,
        "listed": name in [one.id for one in listed.items],
        "refused": refused.code,
    }
    print(json.dumps(found))


main(*sys.argv[1:])
