// Checks requests and objects against the types of Stripe's library for Node, which Stripe generates from its
// API: fields exist and are known, and have the right types and words. Reads a file:
//
//   {"exchanges": [{"method", "path", "fields": [[name, value]], "status", "body"}], "objects": [object],
//    "wrong": [{"like": kind, "object": object}]}
//
// Each object in `wrong` must be refused. Prints one mistake per line, and finally the version of the API.
const fs = require('fs');
const path = require('path');
const ts = require('typescript');
const Stripe = require('stripe');

const modules = process.env.NODE_PATH;

// The types by kind of object.
const OBJECTS = {
  balance_transaction: 'Stripe.BalanceTransaction',
  charge: 'Stripe.Charge',
  'checkout.session': 'Stripe.Checkout.Session',
  customer: 'Stripe.Customer',
  deleted_customer: 'Stripe.DeletedCustomer',
  dispute: 'Stripe.Dispute',
  error: 'Stripe.PaymentIntent.LastPaymentError',
  event: 'Stripe.Event',
  invoice: 'Stripe.Invoice',
  payment_intent: 'Stripe.PaymentIntent',
  payment_method: 'Stripe.PaymentMethod',
  refund: 'Stripe.Refund',
  setup_intent: 'Stripe.SetupIntent',
  'tax.calculation': 'Stripe.Tax.Calculation',
};

// The types of requests and responses.
const OPERATIONS = [
  ['POST', 'customers', 'Stripe.CustomerCreateParams', OBJECTS.customer],
  ['POST', 'customers/*', 'Stripe.CustomerUpdateParams', OBJECTS.customer],
  ['GET', 'customers/*', 'Stripe.CustomerRetrieveParams', OBJECTS.customer],
  ['GET', 'customers/*/payment_methods', 'Stripe.CustomerListPaymentMethodsParams', list('payment_method')],
  ['POST', 'checkout/sessions', 'Stripe.Checkout.SessionCreateParams', OBJECTS['checkout.session']],
  ['GET', 'checkout/sessions', 'Stripe.Checkout.SessionListParams', list('checkout.session')],
  ['GET', 'checkout/sessions/*', 'Stripe.Checkout.SessionRetrieveParams', OBJECTS['checkout.session']],
  ['POST', 'checkout/sessions/*/expire', 'Stripe.Checkout.SessionExpireParams', OBJECTS['checkout.session']],
  ['GET', 'invoices/*', 'Stripe.InvoiceRetrieveParams', OBJECTS.invoice],
  ['POST', 'tax/calculations', 'Stripe.Tax.CalculationCreateParams', OBJECTS['tax.calculation']],
  ['POST', 'payment_intents', 'Stripe.PaymentIntentCreateParams', OBJECTS.payment_intent],
  ['GET', 'payment_intents', 'Stripe.PaymentIntentListParams', list('payment_intent')],
  ['GET', 'payment_intents/*', 'Stripe.PaymentIntentRetrieveParams', OBJECTS.payment_intent],
  ['POST', 'payment_intents/*/cancel', 'Stripe.PaymentIntentCancelParams', OBJECTS.payment_intent],
  ['GET', 'charges/*', 'Stripe.ChargeRetrieveParams', OBJECTS.charge],
  ['GET', 'payment_methods/*', 'Stripe.PaymentMethodRetrieveParams', OBJECTS.payment_method],
  ['POST', 'payment_methods/*/detach', 'Stripe.PaymentMethodDetachParams', OBJECTS.payment_method],
  ['POST', 'refunds', 'Stripe.RefundCreateParams', OBJECTS.refund],
  ['GET', 'refunds', 'Stripe.RefundListParams', list('refund')],
  ['GET', 'refunds/*', 'Stripe.RefundRetrieveParams', OBJECTS.refund],
  ['GET', 'disputes', 'Stripe.DisputeListParams', list('dispute')],
  ['GET', 'disputes/*', 'Stripe.DisputeRetrieveParams', OBJECTS.dispute],
  ['GET', 'events', 'Stripe.EventListParams', list('event')],
  ['GET', 'events/*', 'Stripe.EventRetrieveParams', OBJECTS.event],
];

function list(kind) {
  return `Stripe.ApiList<${OBJECTS[kind]}>`;
}

function operation(method, url) {
  const parts = url.replace('/v1/', '').split('/');
  const is = (pattern) => {
    const words = pattern.split('/');
    return words.length === parts.length && words.every((word, at) => word === '*' || word === parts[at]);
  };
  const found = OPERATIONS.find(([other, pattern]) => other === method && is(pattern));
  if (!found) throw new Error(`no types for ${method} ${url}`);
  return found;
}

// Returns a value in the form in which a program would pass it to the library. Metadata and addresses contain only text.
function value(text, names) {
  if (names.includes('metadata') || names.includes('address')) return text;
  if (/^-?\d+$/.test(text)) return Number(text);
  return text === 'true' ? true : text === 'false' ? false : text;
}

// Converts the fields of a form to nested objects and lists.
function nested(fields) {
  const root = {};
  for (const [name, text] of fields) {
    const names = name.replaceAll(']', '').split('[');
    let place = root;
    names.forEach((part, at) => {
      const isLast = at === names.length - 1;
      if (isLast) place[part] = value(text, names);
      else place = place[part] ??= /^\d+$/.test(names[at + 1]) ? [] : {};
    });
  }
  return root;
}

// The lines of a program, each with its label.
const lines = [];
function hold(label, type, object) {
  lines.push({ label, text: `export const line${lines.length}: ${type} = ${JSON.stringify(object)};` });
}

const input = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
for (const { method, path: url, fields, status, body } of input.exchanges) {
  const [, , params, reply] = operation(method, url);
  if (status === 200) {
    hold(`request ${method} ${url}`, params, nested(fields));
    hold(`answer ${method} ${url}`, reply, body);
  } else {
    hold(`error ${status} ${method} ${url}`, OBJECTS.error, body.error);
  }
}
for (const object of input.objects) {
  const kind = object.deleted ? 'deleted_customer' : object.object;
  hold(`object ${object.id} ${object.type ?? ''}`, OBJECTS[kind], object);
}
const good = lines.length;
for (const { like, object } of input.wrong) {
  const type = OPERATIONS.find(([, , params]) => params.endsWith(like))?.[2] ?? OBJECTS[like];
  hold(`wrong ${JSON.stringify(object)}`, type, object);
}

const file = path.join(path.dirname(modules), 'held.ts');
const program = ["import Stripe from 'stripe';", ...lines.map((line) => line.text)].join('\n');
const options = {
  strict: true, noEmit: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
};
const host = ts.createCompilerHost(options);
const { fileExists, getSourceFile } = host;
let isClosed = false;
host.fileExists = (name) => name === file || fileExists(name);
host.getSourceFile = (name, target, ...rest) => {
  if (name === file) return ts.createSourceFile(name, program, target);
  if (!/\/stripe\/\w+\/shared\.d\.ts$/.test(name)) return getSourceFile(name, target, ...rest);
  // The library allows other words everywhere, because Stripe may add some. This check allows only the listed ones.
  const text = fs.readFileSync(name, 'utf8');
  const closed = text.replace(/export type OtherString = .*;/, 'export type OtherString = never;');
  isClosed = closed !== text;
  return ts.createSourceFile(name, closed, target);
};
const refused = new Set();
let isWrong = false;
for (const found of ts.getPreEmitDiagnostics(ts.createProgram([file], options, host))) {
  const at = found.file?.fileName === file ? found.file.getLineAndCharacterOfPosition(found.start).line - 1 : -1;
  refused.add(at);
  if (at < good) {
    isWrong = true;
    const why = ts.flattenDiagnosticMessageText(found.messageText, ' ').slice(0, 1500);
    console.log(`${lines[at]?.label ?? 'the program'}: ${why}`);
  }
}
for (let at = good; at < lines.length; at++) {
  if (!refused.has(at)) {
    isWrong = true;
    console.log(`${lines[at].label}: it isn't refused`);
  }
}
if (!isClosed) throw new Error('the types of words are written in another way than they were');
console.log(Stripe.API_VERSION ?? new Stripe('sk_test_fake').getApiField('version'));
process.exitCode = isWrong ? 1 : 0;
