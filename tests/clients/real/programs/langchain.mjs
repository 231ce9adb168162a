import { readFileSync } from "node:fs";

import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const { BASE_URL, KEY, MODEL, PROMPT } = process.env;
const readNote = tool(() => readFileSync("note.txt", "utf8"), {
  name: "read_note",
  description: "Reads the note.",
  schema: z.object({}),
});
const model = new ChatOpenAI({ model: MODEL, apiKey: KEY, configuration: { baseURL: `${BASE_URL}/v1` } });
const withTools = model.bindTools([readNote]);
const messages = [new HumanMessage(PROMPT)];
const asked = await withTools.invoke(messages);
messages.push(asked);
for (const { id } of asked.tool_calls) {
  messages.push(new ToolMessage({ content: await readNote.invoke({}), tool_call_id: id }));
}
for await (const part of await withTools.stream(messages)) process.stdout.write(part.content);
console.log();
