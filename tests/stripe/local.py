"""Starts localstripe, with an empty store, on a free port of this machine, and prints the port.

localstripe has an older version of the API. This script adds the differences: it checks and removes fields of requests that
restrict or describe, and derives missing fields of replies from others."""

import asyncio

from aiohttp import web
from localstripe import resources
from localstripe.server import app

# localstripe would write its store to a file that all of its processes share.
resources.Store.dump_to_disk = lambda self: None

create = resources.PaymentIntent._api_create.__func__


def create_intent(cls, allowed_payment_method_types=None, description=None, **data):
    assert allowed_payment_method_types == ["card"] and isinstance(description, str)
    return create(cls, **data)


resources.PaymentIntent._api_create = classmethod(create_intent)
resources.PaymentIntent.amount_received = property(
    lambda intent: intent.amount if intent.status == "succeeded" else 0)
resources.Charge.disputed = False


async def main():
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
