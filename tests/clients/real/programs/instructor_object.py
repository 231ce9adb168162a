import os

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Note(BaseModel):
    path: str


client = instructor.from_openai(OpenAI(base_url=os.environ["BASE_URL"] + "/v1", api_key=os.environ["KEY"]))
messages = [{"role": "user", "content": os.environ["PROMPT"]}]
note = client.chat.completions.create(model=os.environ["MODEL"], response_model=Note, messages=messages)
with open(note.path) as file:
    print(file.read())
