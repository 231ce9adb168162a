import { readFileSync } from "node:fs";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { BASE_URL, KEY: apiKey, MODEL, PROMPT, VARIANT } = process.env;
const create = { anthropic: createAnthropic, openai: createOpenAI, compatible: createOpenAICompatible }[VARIANT];
const provider = create({ name: "tollkeeper", baseURL: `${BASE_URL}/v1`, apiKey });
const read_note = tool({
  description: "Reads the note.",
  inputSchema: z.object({}),
  execute: async () => readFileSync("note.txt", "utf8"),
});
const { textStream } = streamText({
  model: provider(MODEL),
  prompt: PROMPT,
  tools: { read_note },
  stopWhen: stepCountIs(3),
});
for await (const text of textStream) process.stdout.write(text);
console.log();
