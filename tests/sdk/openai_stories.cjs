// Makes calls with the official OpenAI SDK for Node, without retries, and prints what a program sees of each.
//
// The argument and what is printed are those of openai_stories.py.
"use strict";

const OpenAI = require("openai");

const setup = JSON.parse(process.argv[2]);
const client = new OpenAI({ apiKey: setup.key, baseURL: setup.base_url, maxRetries: 0, timeout: 30_000 });

/** The classes that programs catch; newer versions of the SDK may throw narrower ones. */
const CLASSES = [
  OpenAI.BadRequestError, OpenAI.AuthenticationError, OpenAI.PermissionDeniedError, OpenAI.NotFoundError,
  OpenAI.RateLimitError, OpenAI.InternalServerError, OpenAI.APIConnectionError, OpenAI.APIError,
];

function options(story) {
  const counted = story.stream ? { stream_options: { include_usage: true } } : {};
  return { model: story.model, temperature: 0, stream: story.stream, ...counted };
}

/** Notes the choices and the tokens of an answer, or of a part of it. */
function note(seen, part, textOf) {
  for (const choice of part.choices) {
    seen.text += textOf(choice) ?? "";
    seen.finish = choice.finish_reason ?? seen.finish;
  }
  if (part.usage) seen.tokens = [part.usage.prompt_tokens, part.usage.completion_tokens];
}

async function chat(story, seen) {
  const messages = [{ role: "user", content: "hi there" }];
  const answer = await client.chat.completions.create({ messages, max_tokens: 16, ...options(story) });
  if (!story.stream) return note(seen, answer, (choice) => choice.message.content);
  for await (const part of answer) note(seen, part, (choice) => choice.delta.content);
}

async function completions(story, seen) {
  const answer = await client.completions.create({ prompt: "hi there", max_tokens: 16, ...options(story) });
  if (!story.stream) return note(seen, answer, (choice) => choice.text);
  for await (const part of answer) note(seen, part, (choice) => choice.text);
}

async function responses(story, seen) {
  const end = (response) => {
    seen.finish = response.status;
    if (response.usage) seen.tokens = [response.usage.input_tokens, response.usage.output_tokens];
  };
  const { model, stream } = story;
  const body = { model, input: "hi there", max_output_tokens: 16, temperature: 0, stream };
  const answer = await client.responses.create(body);
  if (!stream) {
    seen.text = answer.output_text;
    return end(answer);
  }
  for await (const event of answer) {
    if (event.type === "response.output_text.delta") seen.text += event.delta;
    else if (event.type === "response.completed" || event.type === "response.incomplete") end(event.response);
  }
}

const OPERATIONS = { chat, completions, responses };

async function tell(story) {
  const seen = { text: "", finish: null, tokens: null, error: null };
  try {
    await OPERATIONS[story.operation](story, seen);
  } catch (error) {
    const kind = CLASSES.find((kind) => error instanceof kind) ?? error.constructor;
    seen.error = [kind.name, error.status ?? null, error.code ?? null];
  }
  return seen;
}

async function main() {
  const all = [];
  for (const story of setup.stories) all.push(await tell(story));
  console.log(JSON.stringify(all));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
