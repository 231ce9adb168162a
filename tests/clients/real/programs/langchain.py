import os
import pathlib

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


def read_note() -> str:
    """Reads the note."""
    return pathlib.Path("note.txt").read_text()


server = {"base_url": os.environ["BASE_URL"] + "/v1", "api_key": os.environ["KEY"]}
model = ChatOpenAI(model=os.environ["MODEL"], **server).bind_tools([read_note])
messages = [HumanMessage(os.environ["PROMPT"])]
messages.append(model.invoke(messages))
messages += [ToolMessage(read_note(), tool_call_id=tool["id"]) for tool in messages[-1].tool_calls]
for part in model.stream(messages):
    print(part.text, end="")
print()
vectors = OpenAIEmbeddings(model="svc-embedding-1", check_embedding_ctx_length=False, **server)
assert len(vectors.embed_documents(["one", "two words"])) == 2
