import os
import pathlib

from anthropic import Anthropic

client = Anthropic(base_url=os.environ["BASE_URL"], api_key=os.environ["KEY"])
tools = [{"name": "read_note", "input_schema": {"type": "object", "properties": {}}}]
messages = [{"role": "user", "content": os.environ["PROMPT"]}]
call = {"model": os.environ["MODEL"], "tools": tools, "max_tokens": 64000}
with client.messages.stream(messages=messages, **call) as stream:
    asked = stream.get_final_message().content
results = [{"type": "tool_result", "tool_use_id": tool.id, "content": pathlib.Path("note.txt").read_text()}
           for tool in asked]
messages += [{"role": "assistant", "content": asked}, {"role": "user", "content": results}]
with client.messages.stream(messages=messages, **call) as stream:
    for text in stream.text_stream:
        print(text, end="")
print()
