// Calls a server with the official OpenAI SDK for Node and checks what a program would see.
//
// The one argument is a JSON object: base_url, and the bearers to use. Prints "all good" and the number of requests that
// were sent, or fails.
"use strict";

const assert = require("node:assert/strict");
const OpenAI = require("openai");

const setup = JSON.parse(process.argv[2]);

/** The status of every answer, in the order of their coming. */
const statuses = [];

async function countingFetch(url, init) {
  const answer = await fetch(url, init);
  statuses.push(answer.status);
  return answer;
}

/** A client with the SDK's own number of retries, unless another is given: what isn't worth one must say so. */
function client(bearer, options = {}) {
  return new OpenAI({ apiKey: bearer, baseURL: setup.base_url, timeout: 30_000, fetch: countingFetch, ...options });
}

/** Calls, and checks that this typed error comes with all its fields, after one request. */
async function refused(kind, status, code, type, call, param = null) {
  const before = statuses.length;
  let answer;
  try {
    answer = await call();
  } catch (error) {
    assert.equal(error.constructor, kind, `${kind.name} was due, ${error} came`);
    assert.deepEqual([error.status, error.code, error.type, error.param], [status, code, type, param]);
    assert.match(error.requestID, /^req_/);
    assert.equal(error.requestID, error.headers.get("x-request-id"));
    assert.ok(error.message.includes(error.error.message) && Array.isArray(error.error.details), error.message);
    assert.deepEqual(statuses.slice(before), [status], "it was tried once");
    return error;
  }
  throw new Error(`${kind.name} was due, ${JSON.stringify(answer)} came`);
}

/** Whatever the SDK hands out page by page, at once. */
async function all(page) {
  const items = [];
  for await (const item of page) items.push(item);
  return items;
}

async function models() {
  for (const bearer of [setup.key, setup.access_token]) {
    const list = await client(bearer).models.list();
    assert.equal(list.object, "list");
    const ids = list.data.map((model) => model.id);
    assert.deepEqual(ids, setup.models);
    assert.equal((await all(list)).length, ids.length, "there is one page");
    for (const listed of list.data) {
      assert.ok(listed.object === "model" && listed.owned_by && listed.created > 0, JSON.stringify(listed));
      const model = await client(bearer).models.retrieve(listed.id);
      for (const name of ["id", "created", "owned_by"]) assert.equal(model[name], listed[name]);
      assert.deepEqual(model.capabilities, listed.capabilities);
      assert.ok(model.limits.max_tokens > 0);
    }
    const { response, request_id } = await client(bearer).models.list().withResponse();
    assert.match(request_id, /^req_/);
    assert.equal(request_id, response.headers.get("x-request-id"));
  }
  const one = client(setup.one_model_key);
  assert.deepEqual((await one.models.list()).data.map((model) => model.id), ["svc-1"]);
  assert.equal((await one.models.retrieve("svc-1")).id, "svc-1");
}

async function refusals() {
  const authentication = "authentication_error";
  const list = (bearer) => () => client(bearer).models.list();
  for (const bad of ["tk_nobody", setup.key.slice(0, -1) + "!", setup.key + "x"]) {
    await refused(OpenAI.AuthenticationError, 401, "invalid_api_key", authentication, list(bad));
  }
  await refused(OpenAI.AuthenticationError, 401, "invalid_access_token", authentication, list("nonsense"));
  const denied = OpenAI.PermissionDeniedError;
  await refused(denied, 403, "missing_permission", "permission_error", list(setup.no_models_key));
  const other = () => client(setup.one_model_key).models.retrieve("svc-embedding-1");
  await refused(denied, 403, "model_not_allowed", "permission_error", other);
  for (const unknown of ["gpt-none", "some/where/else"]) {
    const call = () => client(setup.key).models.retrieve(unknown);
    await refused(OpenAI.NotFoundError, 404, "model_not_found", "invalid_request_error", call);
  }
  // The rest of the interface by the same client: a conflict, and a field that is wrong.
  const create = (name) => () => client(setup.access_token).post("/organizations", { body: { name } });
  await refused(OpenAI.ConflictError, 409, "name_taken", "invalid_request_error", create("Acme"), "name");
  await refused(OpenAI.BadRequestError, 400, "invalid_request", "invalid_request_error", create(undefined), "name");
}

async function retries() {
  const once = client(setup.slow_key, { maxRetries: 0 });
  const again = client(setup.slow_key);
  // The rate fills up with time: on a slow machine the second client may come too late to be refused.
  for (;;) {
    let error;
    while (!error) error = await once.models.list().then(() => undefined, (refusal) => refusal);
    assert.equal(error.constructor, OpenAI.RateLimitError, String(error));
    assert.deepEqual([error.code, error.type, error.param], ["rate_limited", "rate_limit_error", null]);
    assert.match(error.requestID, /^req_/);
    const [seconds, milliseconds] = ["retry-after", "retry-after-ms"].map((name) => Number(error.headers.get(name)));
    assert.ok(1 <= seconds && seconds <= 60 && 0 < milliseconds && milliseconds <= 1_000, `${seconds} ${milliseconds}`);
    const before = statuses.length;
    assert.equal((await again.models.list()).data.length, setup.models.length);
    const seen = statuses.slice(before);
    if (seen.length > 1) {
      assert.deepEqual(seen, [429, 200], "it came back when it was told to, and not before");
      return;
    }
  }
}

async function main() {
  await models();
  await refusals();
  await retries();
  console.log("all good", statuses.length);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
