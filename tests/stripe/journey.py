"""Buys credit, saves the card, charges it, and refunds a part, with Stripe's Python library. The arguments are the address of
an API and its secret key. The library's classes check every response."""

import sys
import urllib.error
import urllib.parse
import urllib.request

import stripe


class StayHere(urllib.request.HTTPRedirectHandler):
    """Doesn't follow redirects, because the page redirects to a nonexistent site."""

    def redirect_request(self, *_):
        return None


def pay(url, number):
    """Pays on the page of a checkout session. Returns the status and the redirect of the response."""
    body = urllib.parse.urlencode({"card": number}).encode()
    try:
        answer = urllib.request.build_opener(StayHere).open(url, body)
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, answer.headers.get("location")


def refused(kind, call):
    """Returns the error of a call that must fail with this class."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"the call succeeded instead of failing with {kind}")


def pay_with_tax():
    """Buys credit with a tax of 20 %, and charges the saved card with a tax that is computed first."""
    customer = stripe.Customer.create(name="Grace")

    def calculate():
        items = [{"amount": 1000, "reference": "pay_2", "tax_behavior": "exclusive", "tax_code": "txcd_10103001"}]
        return stripe.tax.Calculation.create(currency="usd", customer=customer.id, line_items=items)

    error = refused(stripe.InvalidRequestError, calculate)
    assert (error.http_status, error.code) == (400, "customer_tax_location_invalid")
    session = stripe.checkout.Session.create(
        mode="payment",
        customer=customer.id,
        line_items=[{"quantity": 1, "price_data": {
            "currency": "usd", "unit_amount": 1000, "tax_behavior": "exclusive", "product_data": {"name": "Credit"}}}],
        success_url="http://127.0.0.1:1/",
        cancel_url="http://127.0.0.1:1/",
        payment_intent_data={"setup_future_usage": "off_session"},
        automatic_tax={"enabled": True},
        tax_id_collection={"enabled": True},
        invoice_creation={"enabled": True},
        customer_update={"address": "auto", "name": "auto"},
    )
    assert (session.amount_total, session.automatic_tax.status) == (1000, "requires_location_inputs")
    assert pay(session.url, "4242424242424242")[0] == 303
    session = stripe.checkout.Session.retrieve(session.id, expand=["payment_intent", "invoice"])
    assert (session.amount_subtotal, session.total_details.amount_tax, session.amount_total) == (1000, 200, 1200)
    assert session.invoice.hosted_invoice_url.startswith(stripe.api_base)
    [found] = stripe.checkout.Session.list(payment_intent=session.payment_intent.id)
    assert (found.id, session.payment_intent.amount_received) == (session.id, 1200)
    tax = calculate()
    assert isinstance(tax, stripe.tax.Calculation) and (tax.tax_amount_exclusive, tax.amount_total) == (200, 1200)
    charged = stripe.PaymentIntent.create(
        amount=tax.amount_total, currency="usd", customer=customer.id, payment_method=session.payment_intent.payment_method,
        confirm=True, off_session=True, hooks={"inputs": {"tax": {"calculation": tax.id}}})
    assert (charged.status, charged.hooks.inputs.tax.calculation) == ("succeeded", tax.id)


def main(api_url, secret_key):
    stripe.api_base = api_url
    stripe.api_key = secret_key
    stripe.max_network_retries = 0

    customer = stripe.Customer.create(name="Ada", email="ada@example.com", metadata={"organization_id": "org_2"})
    assert stripe.Customer.retrieve(customer.id).metadata["organization_id"] == "org_2"

    session = stripe.checkout.Session.create(
        mode="payment",
        customer=customer.id,
        line_items=[{"quantity": 1, "price_data": {
            "currency": "usd", "unit_amount": 2500, "product_data": {"name": "Credit"}}}],
        success_url="http://127.0.0.1:1/paid?session={CHECKOUT_SESSION_ID}",
        cancel_url="http://127.0.0.1:1/",
        metadata={"payment_id": "pay_1"},
        payment_intent_data={"setup_future_usage": "off_session", "metadata": {"payment_id": "pay_1"}},
        allowed_payment_method_types=["card"],
        idempotency_key="sdk_1",
    )
    assert (session.status, session.payment_status, session.payment_intent) == ("open", "unpaid", None)
    page = urllib.request.urlopen(session.url).read().decode()
    assert "<h1>2500</h1>" in page and 'href="http://127.0.0.1:1/"' in page, page
    assert pay(session.url, "4000000000000002") == (402, None)
    assert pay(session.url, "4242424242424242") == (303, f"http://127.0.0.1:1/paid?session={session.id}")

    expand = ["payment_intent.latest_charge", "payment_intent.payment_method"]
    session = stripe.checkout.Session.retrieve(session.id, expand=expand)
    intent = session.payment_intent
    assert isinstance(intent, stripe.PaymentIntent) and isinstance(intent.latest_charge, stripe.Charge)
    assert (session.status, session.payment_status, intent.status) == ("complete", "paid", "succeeded")
    assert (intent.amount_received, intent.currency, intent.metadata["payment_id"]) == (2500, "usd", "pay_1")
    card = intent.payment_method
    assert isinstance(card, stripe.PaymentMethod) and card.card.last4 == "4242" and card.customer == customer.id
    assert [method.id for method in stripe.Customer.list_payment_methods(customer.id, type="card")] == [card.id]

    def charge(amount, key, method=card.id):
        return stripe.PaymentIntent.create(
            amount=amount, currency="usd", customer=customer.id, payment_method=method, confirm=True,
            off_session=True, allowed_payment_method_types=["card"], idempotency_key=key)

    away = charge(1000, "sdk_2")
    assert (away.status, away.amount_received) == ("succeeded", 1000)
    assert charge(1000, "sdk_2").id == away.id
    refused(stripe.IdempotencyError, lambda: charge(1001, "sdk_2"))
    error = refused(stripe.InvalidRequestError, lambda: charge(10, "sdk_3"))
    assert (error.http_status, error.code, error.param) == (400, "amount_too_small", "amount")

    setup = stripe.checkout.Session.create(
        mode="setup", customer=customer.id, success_url="http://127.0.0.1:1/", cancel_url="http://127.0.0.1:1/",
        allowed_payment_method_types=["card"])
    assert pay(setup.url, "4000002760003184")[0] == 303
    setup = stripe.checkout.Session.retrieve(setup.id, expand=["setup_intent"])
    careful = setup.setup_intent.payment_method
    error = refused(stripe.CardError, lambda: charge(1000, "sdk_4", careful))
    assert (error.http_status, error.code) == (402, "authentication_required")
    failed = stripe.PaymentIntent.retrieve(error.error.payment_intent.id)
    assert (failed.status, failed.last_payment_error.code) == ("requires_payment_method", "authentication_required")
    assert stripe.PaymentIntent.cancel(failed.id).status == "canceled"

    refund = stripe.Refund.create(payment_intent=intent.id, amount=500, metadata={"refund_id": "ref_1"})
    assert (refund.status, refund.amount, stripe.Refund.retrieve(refund.id).charge) == (
        "succeeded", 500, intent.latest_charge.id)
    assert stripe.Charge.retrieve(intent.latest_charge.id).amount_refunded == 500
    refused(stripe.InvalidRequestError, lambda: stripe.Refund.create(payment_intent=intent.id, amount=2001))

    ids = [one.id for one in stripe.PaymentIntent.list(customer=customer.id, limit=2).auto_paging_iter()]
    assert ids == [failed.id, away.id, intent.id]
    kinds = {event.type for event in stripe.Event.list(limit=5).auto_paging_iter()}
    assert {"checkout.session.completed", "payment_intent.payment_failed", "charge.refunded"} <= kinds
    assert stripe.PaymentMethod.detach(card.id).customer is None
    pay_with_tax()
    stripe.api_key = "sk_test_wrong"
    refused(stripe.AuthenticationError, lambda: stripe.Customer.retrieve(customer.id))
    print("the journey is done")


main(*sys.argv[1:])
