"""Verifies and signs an event with Stripe's Python library. The arguments are the secret, the time in Unix seconds, the header
and the body. Prints the type of the event, the id of its object, and the library's own header."""

import sys
import time

import stripe


def main(secret, now, header, body):
    time.time = lambda: float(now)
    event = stripe.Webhook.construct_event(body.encode(), header, secret)
    for wrong in (header.replace("v1=", "v1=0"), header.replace("v1=", "v0=")):
        try:
            stripe.Webhook.construct_event(body.encode(), wrong, secret)
        except stripe.SignatureVerificationError:
            continue
        raise AssertionError(f"it takes {wrong}")
    print(event.type)
    print(event.data.object.id)
    signature = stripe.WebhookSignature._compute_signature(f"{now}.{body}", secret)
    print(f"t={now},v1={signature}")


main(*sys.argv[1:])
