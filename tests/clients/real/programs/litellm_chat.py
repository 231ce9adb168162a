import os
import pathlib

import litellm

tools = [{"type": "function", "function": {"name": "read_note", "parameters": {"type": "object", "properties": {}}}}]
messages = [{"role": "user", "content": os.environ["PROMPT"]}]
call = {"model": "openai/" + os.environ["MODEL"], "api_base": os.environ["BASE_URL"] + "/v1",
        "api_key": os.environ["KEY"], "tools": tools}
asked = litellm.completion(messages=messages, **call).choices[0].message
messages.append(asked.model_dump())
messages += [{"role": "tool", "tool_call_id": tool.id, "content": pathlib.Path("note.txt").read_text()}
             for tool in asked.tool_calls]
for part in litellm.completion(messages=messages, stream=True, **call):
    print(part.choices[0].delta.content or "", end="")
print()
