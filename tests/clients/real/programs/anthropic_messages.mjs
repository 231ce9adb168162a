import { readFileSync } from "node:fs";

import Anthropic from "@anthropic-ai/sdk";

const { BASE_URL, KEY, MODEL: model, PROMPT } = process.env;
const client = new Anthropic({ baseURL: BASE_URL, apiKey: KEY });
const tools = [{ name: "read_note", input_schema: { type: "object", properties: {} } }];
const messages = [{ role: "user", content: PROMPT }];
const asked = await client.messages.stream({ model, tools, messages, max_tokens: 64000 }).finalMessage();
const results = asked.content.map((tool) => ({
  type: "tool_result",
  tool_use_id: tool.id,
  content: readFileSync("note.txt", "utf8"),
}));
messages.push({ role: "assistant", content: asked.content }, { role: "user", content: results });
client.messages.stream({ model, tools, messages, max_tokens: 64000 }).on("text", (text) => process.stdout.write(text));
