"""Checks whether the library `fido2` accepts the responses of authenticators.

Reads cases as JSON from standard input: `rp_id`, `origin`, and two lists, `made` (`challenge`, `answer`) and `signed` (`challenge`,
`answer`, `credential`: the attested credential data). Prints two lists of booleans under the same names.
"""

import json
import logging
import sys

from fido2.server import Fido2Server
from fido2.utils import websafe_decode
from fido2.webauthn import AttestedCredentialData


def is_taken(check):
    """Returns whether a check passes. A response that can't be parsed is also refused, with any exception of the library."""
    try:
        check()
    except Exception:
        return False
    return True


def main():
    logging.disable()
    cases = json.load(sys.stdin)
    origin = cases["origin"]
    server = Fido2Server({"id": cases["rp_id"], "name": "tollkeeper"}, verify_origin=lambda found: found == origin)
    state = lambda case: {"challenge": case["challenge"], "user_verification": "required"}
    made = lambda case: server.register_complete(state(case), case["answer"])
    known = lambda case: [AttestedCredentialData(websafe_decode(case["credential"]))]
    signed = lambda case: server.authenticate_complete(state(case), known(case), case["answer"])
    json.dump({
        "made": [is_taken(lambda: made(case)) for case in cases["made"]],
        "signed": [is_taken(lambda: signed(case)) for case in cases["signed"]],
    }, sys.stdout)


main()
