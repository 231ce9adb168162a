"""The clients: how each of them is started, and how they differ."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess

import install
import page
import stub

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
PROMPT_OF_PAGE = '"hi"'

# Disables telemetry, updates, and downloads of model lists.
QUIET = {
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "COLUMNS": "400",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "QWEN_TELEMETRY_ENABLED": "false",
    "PI_OFFLINE": "1",
    "CONTINUE_METRICS_ENABLED": "0",
    "CONTINUE_TELEMETRY_ENABLED": "0",
    "AIDER_ANALYTICS": "false",
    "AIDER_CHECK_UPDATE": "false",
    "AIDER_SHOW_RELEASE_NOTES": "false",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
}


@dataclasses.dataclass(frozen=True)
class Client:
    """A client with its input: the blocks of a section of docs/tools.md."""

    name: str
    heading: str
    folder: str
    # The index of the block, if the section has several.
    block: int = 0
    # Arguments of a command that allow the client to use its tools, or the program in `programs` that uses a tool. None
    # if the client has no tools or doesn't run them.
    tool: str | None = None
    # An argument for a program in `programs`.
    variant: str = ""
    # The client's own messages where it doesn't show those of the server, by scene.
    own_words: dict = dataclasses.field(default_factory=dict)
    # The row of a library in the page's table of exceptions.
    library: str = ""


CLIENTS = [
    Client("Claude Code", "Claude Code", "claude-code", tool="--allowedTools Bash Read",
           own_words={"unknown model": "There's an issue with the selected model (no-such-model)."}),
    Client("Codex", "Codex", "codex", tool="--dangerously-bypass-approvals-and-sandbox"),
    Client("OpenCode", "OpenCode", "opencode", tool=""),
    Client("Qwen Code", "Qwen Code", "qwen-code", tool="--yolo"),
    Client("pi", "pi", "pi", tool=""),
    Client("Continue", "Continue", "continue", tool="--auto"),
    Client("aider", "aider", "aider"),
    Client("llm", "llm", "llm", tool="--functions read_note.py"),
    Client("openai, Python, chat", "OpenAI's SDK for Python", "openai-python", tool="openai_chat.py",
           library="OpenAI's SDK and Instructor, Python"),
    Client("openai, Python, responses", "OpenAI's SDK for Python", "openai-python", 1, tool="openai_responses.py",
           library="OpenAI's SDK and Instructor, Python"),
    Client("openai, TypeScript", "OpenAI's SDK for TypeScript", "openai-node", tool="openai_chat.mjs",
           library="OpenAI's SDK, TypeScript"),
    Client("anthropic, Python", "Anthropic's SDK for Python", "anthropic-python", tool="anthropic_messages.py",
           library="Anthropic's SDKs"),
    Client("anthropic, TypeScript", "Anthropic's SDK for TypeScript", "anthropic-node", tool="anthropic_messages.mjs",
           library="Anthropic's SDKs"),
    Client("AI SDK, compatible", "Vercel's AI SDK", "ai-sdk", 0, tool="ai_sdk.mjs", variant="compatible",
           library="Vercel's AI SDK"),
    Client("AI SDK, openai", "Vercel's AI SDK", "ai-sdk", 1, tool="ai_sdk.mjs", variant="openai",
           library="Vercel's AI SDK"),
    Client("AI SDK, anthropic", "Vercel's AI SDK", "ai-sdk", 2, tool="ai_sdk.mjs", variant="anthropic",
           library="Vercel's AI SDK"),
    Client("LangChain, Python", "LangChain for Python", "langchain-python", tool="langchain.py",
           library="LangChain, Python"),
    Client("LangChain, TypeScript", "LangChain for TypeScript", "langchain-node", tool="langchain.mjs",
           library="LangChain, TypeScript"),
    Client("Pydantic AI, chat", "Pydantic AI", "pydantic-ai", 0, tool="pydantic_ai_agent.py", variant="openai",
           library="Pydantic AI"),
    Client("Pydantic AI, anthropic", "Pydantic AI", "pydantic-ai", 1, tool="pydantic_ai_agent.py", variant="anthropic",
           library="Pydantic AI"),
    Client("LiteLLM", "LiteLLM", "litellm", tool="litellm_chat.py", library="LiteLLM"),
    Client("Instructor", "Instructor", "instructor", tool="instructor_object.py",
           library="OpenAI's SDK and Instructor, Python"),
    Client("DSPy", "DSPy", "dspy", library="DSPy"),
    Client("promptfoo", "promptfoo", "promptfoo"),
]


def other_versions():
    """Returns a message for each client whose section of the page doesn't contain the installed version."""
    packages = install.NPM | install.PIP
    versions = {client.heading: re.split("==|@", packages[client.folder][0])[-1] for client in CLIENTS}
    sections = page.sections()
    return [f"docs/tools.md: {heading} isn't {version}, which is installed"
            for heading, version in versions.items() if version not in sections[heading]]


class Place:
    """The folders of one start of a client: a home folder and a working folder. The latter has a note if a word is
    given."""

    def __init__(self, root, word):
        self.home, self.work = root / "home", root / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        if word:
            (self.work / stub.NOTE).write_text(word + "\n")
            # For llm, whose tools are the functions in a file.
            shutil.copy(PROGRAMS / "read_note.py", self.work)
        subprocess.run(["git", "init", "-q", self.work], env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
                       check=True)

    def write(self, path, text):
        file = self.home / path.removeprefix("~/") if path.startswith("~/") else self.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def prepare(client, installed, place, base_url, key, model, prompt, outside):
    """Writes the files for a start, and returns its command and environment."""
    files, (language, text) = page.blocks(client.heading, client.block)

    def fill(text):
        text = text.replace("http://127.0.0.1:8080", base_url).replace("YOUR_KEY", key)
        return text.replace("svc-1", model).replace(PROMPT_OF_PAGE, f'"{prompt}"')

    for path, content in files.items():
        place.write(path, fill(content))
    own = installed / client.folder
    node = install.install_node(installed).parent
    programs = own / "node_modules" / ".bin" if client.folder in install.NPM else own / "bin"
    environment = {
        "PATH": f"{programs}:{node}:{os.environ['PATH']}",
        "HOME": str(place.home),
        "TMPDIR": str(place.home),
        "LANG": "C.UTF-8",
        "HTTPS_PROXY": outside.url, "https_proxy": outside.url, "HTTP_PROXY": outside.url, "http_proxy": outside.url,
        "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
        **QUIET,
        "BASE_URL": base_url, "KEY": key, "MODEL": model, "PROMPT": prompt, "VARIANT": client.variant,
    }
    uses_tool = prompt != "hi"
    if language == "sh":
        text = fill(text)
        if uses_tool:
            text = f"{text.rstrip()} {client.tool}\n"
        return ["sh", "-ec", text], environment
    suffix = {"python": "py", "js": "mjs"}[language]
    file = place.work / f"block.{suffix}"
    if uses_tool:
        shutil.copy(PROGRAMS / client.tool, file)
    else:
        file.write_text(fill(text))
    if language == "js":
        (place.work / "node_modules").symlink_to(own / "node_modules")
        return [str(node / "node"), str(file)], environment
    return [str(own / "bin" / "python"), str(file)], environment
