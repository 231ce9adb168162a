import { readFileSync } from "node:fs";

import OpenAI from "openai";

const { BASE_URL, KEY, MODEL: model, PROMPT } = process.env;
const client = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: KEY });
const tools = [{ type: "function", function: { name: "read_note", parameters: { type: "object", properties: {} } } }];
const messages = [{ role: "user", content: PROMPT }];
const asked = (await client.chat.completions.create({ model, tools, messages })).choices[0].message;
messages.push(asked);
for (const tool of asked.tool_calls) {
  messages.push({ role: "tool", tool_call_id: tool.id, content: readFileSync("note.txt", "utf8") });
}
for await (const part of await client.chat.completions.create({ model, tools, messages, stream: true })) {
  process.stdout.write(part.choices[0]?.delta.content ?? "");
}
console.log();
