"""Adds a card to a customer of localstripe with Stripe's Python library. The arguments are the address, the customer and the
card number. Prints the id of the payment method."""

import sys

import stripe

stripe.api_base, customer, number = sys.argv[1:]
stripe.api_key = "sk_test_local"
card = {"number": number, "exp_month": 8, "exp_year": 2031, "cvc": "123"}
method = stripe.PaymentMethod.create(type="card", card=card)
print(stripe.PaymentMethod.attach(method.id, customer=customer).id)
