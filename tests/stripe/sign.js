// Signs a body with Stripe's Node library. The arguments are the secret, the time in Unix seconds, and the body.
const Stripe = require('stripe');
const [secret, timestamp, payload] = process.argv.slice(2);
const { webhooks } = new Stripe('sk_test_fake');
console.log(webhooks.generateTestHeaderString({ payload, secret, timestamp: Number(timestamp) }));
