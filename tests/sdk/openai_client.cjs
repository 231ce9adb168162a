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

const hello = [{ role: "user", content: "Say hello to me." }];

/** Chats with the demo, whose tokens are words. */
async function chats() {
  const completions = client(setup.key).chat.completions;
  const { data: chat, response } = await completions.create({ model: "svc-1", messages: hello }).withResponse();
  assert.equal(response.headers.get("x-tollkeeper-demo"), "true");
  assert.match(response.headers.get("x-tollkeeper-call-id"), /^call_/);
  const text = chat.choices[0].message.content;
  assert.match(text, /^This is the demo model .* a real model\.$/);
  assert.deepEqual([chat.model, chat.object, chat.choices[0].finish_reason], ["svc-1", "chat.completion", "stop"]);
  assert.deepEqual(chat.usage, { prompt_tokens: 4, completion_tokens: 42, total_tokens: 46 });
  const { organization, project } = setup;
  const person = client(setup.access_token, { organization, project }).chat.completions;
  const short = await person.create({ model: "svc-1", messages: hello, max_completion_tokens: 4 });
  assert.equal(short.choices[0].message.content, "This is the demo");
  assert.equal(short.choices[0].finish_reason, "length");
  for (const stream_options of [undefined, { include_usage: true }]) {
    const chunks = await all(await completions.create({ model: "svc-1", messages: hello, stream: true, stream_options }));
    if (stream_options) {
      const last = chunks.pop();
      assert.deepEqual([last.choices, last.usage], [[], chat.usage]);
    }
    assert.ok(chunks.every((chunk) => chunk.model === "svc-1" && !chunk.usage), JSON.stringify(chunks));
    assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), text);
    assert.equal(chunks.at(-1).choices[0].finish_reason, "stop");
  }
}

/** Errors before an answer begins are those of their statuses, whether or not a stream was asked for. */
async function refusedChats() {
  const [denied, invalid] = [OpenAI.PermissionDeniedError, "invalid_request_error"];
  for (const stream of [false, true]) {
    const ask = (bearer, model, more = {}, options = {}) => () =>
      client(bearer, options).chat.completions.create({ model, messages: hello, stream, ...more });
    await refused(denied, 403, "missing_permission", "permission_error", ask(setup.no_chat_key, "svc-1"));
    const other = ask(setup.one_model_key, "svc-1-turbo");
    await refused(denied, 403, "model_not_allowed", "permission_error", other);
    await refused(OpenAI.NotFoundError, 404, "model_not_found", invalid, ask(setup.key, "gpt-none"), "model");
    // The SDK would try it again: a model may get a server.
    const unserved = ask(setup.key, "svc-1-turbo", {}, { maxRetries: 0 });
    await refused(OpenAI.InternalServerError, 503, "model_not_served", "api_error", unserved);
  }
}

/** Without money: an error at once. The SDK has no class for 402. */
async function withoutMoney() {
  const poor = client(setup.poor_key);
  const quota = "insufficient_quota";
  for (const stream of [false, true]) {
    const chat = () => poor.chat.completions.create({ model: "svc-1", messages: hello, stream });
    await refused(OpenAI.APIError, 402, quota, quota, chat);
    const response = () => poor.responses.create({ model: "svc-1", input: "Hello", stream });
    await refused(OpenAI.APIError, 402, quota, quota, response);
  }
  const vectors = () => poor.embeddings.create({ model: "svc-embedding-1", input: "one" });
  await refused(OpenAI.APIError, 402, quota, quota, vectors);
}

/** A limit above the model's is lowered. Organizations of OpenAI, from the environment, mean nothing next to a key. */
async function loweredLimit() {
  const elsewhere = client(setup.key, { organization: "org-elsewhere", project: "proj_elsewhere" });
  const body = { model: "svc-1", messages: hello, max_completion_tokens: 128_000 };
  const { response } = await elsewhere.chat.completions.create(body).withResponse();
  assert.equal(response.headers.get("x-tollkeeper-max-tokens"), "4096");
  assert.equal((await elsewhere.models.retrieve("svc-1")).id, "svc-1");
}

/** A stream that its server cuts is an error, and no end. */
async function cutStream() {
  const words = [];
  const body = { model: "acme/chat/v2:latest", messages: hello, stream: true };
  const stream = await client(setup.key).chat.completions.create(body);
  const read = async () => {
    for await (const chunk of stream) words.push(chunk.choices[0].delta.content);
  };
  await assert.rejects(read, (error) => {
    assert.equal(error.constructor, OpenAI.APIError, String(error));
    assert.deepEqual([error.code, error.type, error.param], ["upstream_cut", "api_error", null]);
    return true;
  });
  assert.deepEqual(words, ["Hello"]);
}

async function retries() {
  const once = client(setup.slow_key, { maxRetries: 0 });
  const again = client(setup.slow_key);
  // The rate fills up with time: on a slow machine the second client may come too late to be refused.
  for (;;) {
    let error;
    // Lists of models don't count against the key's rate.
    while (!error) error = await once.get("/billing/pricing").then(() => undefined, (refusal) => refusal);
    assert.equal(error.constructor, OpenAI.RateLimitError, String(error));
    assert.deepEqual([error.code, error.type, error.param], ["rate_limited", "rate_limit_error", null]);
    assert.match(error.requestID, /^req_/);
    const [seconds, milliseconds] = ["retry-after", "retry-after-ms"].map((name) => Number(error.headers.get(name)));
    assert.ok(1 <= seconds && seconds <= 60 && 0 < milliseconds && milliseconds <= 1_000, `${seconds} ${milliseconds}`);
    const before = statuses.length;
    await again.get("/billing/pricing");
    const seen = statuses.slice(before);
    if (seen.length > 1) {
      assert.deepEqual(seen, [429, 200], "it came back when it was told to, and not before");
      return;
    }
  }
}

/** The other operations, plain and as streams. */
async function otherOperations() {
  const key = client(setup.key);
  const completion = await key.completions.create({ model: "svc-1", prompt: "Once", max_tokens: 3 });
  assert.equal(completion.choices[0].text, "This is the");
  const pieces = [];
  for await (const piece of await key.completions.create({ model: "svc-1", prompt: "Once", max_tokens: 3, stream: true })) {
    pieces.push(piece.choices[0].text);
  }
  assert.equal(pieces.join(""), "This is the");
  const vectors = await key.embeddings.create({ model: "svc-embedding-1", input: ["one", "two"], dimensions: 3 });
  assert.deepEqual(vectors.data.map((vector) => vector.embedding.length), [3, 3]);
  assert.deepEqual(vectors.usage, { prompt_tokens: 2, total_tokens: 2 });
  const response = await key.responses.create({ model: "svc-1", input: "Say hello.", max_output_tokens: 4 });
  assert.deepEqual([response.output_text, response.status], ["This is the demo", "incomplete"]);
  const stream = key.responses.stream({ model: "svc-1", input: "Say hello.", max_output_tokens: 4 });
  const deltas = [];
  stream.on("response.output_text.delta", (event) => deltas.push(event.delta));
  assert.equal((await stream.finalResponse()).usage.output_tokens, 4);
  assert.equal(deltas.join(""), "This is the demo");
}

async function main() {
  await models();
  await refusals();
  await chats();
  await refusedChats();
  await withoutMoney();
  await loweredLimit();
  await cutStream();
  await otherOperations();
  await retries();
  console.log("all good", statuses.length);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
