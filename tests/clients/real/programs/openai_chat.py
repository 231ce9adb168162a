import json
import os
import pathlib

from openai import OpenAI

client = OpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key=os.environ["KEY"])
tools = [{"type": "function", "function": {"name": "read_note", "parameters": {"type": "object", "properties": {}}}}]
messages = [{"role": "user", "content": os.environ["PROMPT"]}]
call = {"model": os.environ["MODEL"], "tools": tools}
asked = client.chat.completions.create(messages=messages, **call).choices[0].message
messages.append(asked)
for tool in asked.tool_calls:
    assert json.loads(tool.function.arguments) == {}
    messages.append({"role": "tool", "tool_call_id": tool.id, "content": pathlib.Path("note.txt").read_text()})
for part in client.chat.completions.create(messages=messages, stream=True, **call):
    for choice in part.choices:
        print(choice.delta.content or "", end="")
print()
