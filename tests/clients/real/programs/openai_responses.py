import os
import pathlib

from openai import OpenAI

client = OpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key=os.environ["KEY"])
tools = [{"type": "function", "name": "read_note", "strict": False, "parameters": {"type": "object", "properties": {}}}]
items = [{"role": "user", "content": os.environ["PROMPT"]}]
call = {"model": os.environ["MODEL"], "tools": tools}
asked = client.responses.create(input=items, **call).output
items += asked
items += [{"type": "function_call_output", "call_id": tool.call_id, "output": pathlib.Path("note.txt").read_text()}
          for tool in asked]
for event in client.responses.create(input=items, stream=True, **call):
    if event.type == "response.output_text.delta":
        print(event.delta, end="")
print()
