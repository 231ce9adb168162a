import os
import pathlib

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

base_url, key, name = (os.environ[variable] for variable in ("BASE_URL", "KEY", "MODEL"))
if os.environ["VARIANT"] == "anthropic":
    model = AnthropicModel(name, provider=AnthropicProvider(base_url=base_url, api_key=key))
else:
    model = OpenAIChatModel(name, provider=OpenAIProvider(base_url=base_url + "/v1", api_key=key))
agent = Agent(model)


@agent.tool_plain
def read_note() -> str:
    """Reads the note."""
    return pathlib.Path("note.txt").read_text()


print(agent.run_sync(os.environ["PROMPT"]).output)
