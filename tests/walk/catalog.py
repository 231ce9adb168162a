"""The model catalog of the walk."""

CATALOG = """\
currency = "USD"
"""

MODELS = """
[[models]]
id = "chat-1"
kind = "chat"
description = "General chat"
owned_by = "walk"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 100000
max_concurrent_requests = 1000
prices = [
  { effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000002", completion_tokens = "0.000006" },
  { effective_at = "2040-03-20T00:00:00Z", prompt_tokens = "0.000003", completion_tokens = "0.000006" },
]

[[models]]
id = "acme/chat-2"
kind = "chat"
description = "With a slash"
owned_by = "acme"
created = 1704067200
max_tokens = 2048
max_requests_per_min = 100000
max_concurrent_requests = 1000
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.00001", completion_tokens = "0.00003" }]

[[models]]
id = "embed-1"
kind = "embeddings"
description = "Vectors"
owned_by = "walk"
created = 1704067200
dimension = 8
max_tokens = 8192
max_requests_per_min = 100000
max_concurrent_requests = 1000
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.0000001" }]

[[models]]
id = "chat-slow"
kind = "chat"
description = "One request a minute"
owned_by = "walk"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 1
max_concurrent_requests = 1000
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000002", completion_tokens = "0.000006" }]

[[models]]
id = "chat-slow-2"
kind = "chat"
description = "One request a minute"
owned_by = "walk"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 1
max_concurrent_requests = 1000
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000002", completion_tokens = "0.000006" }]

[[models]]
id = "chat-single"
kind = "chat"
description = "One call at a time"
owned_by = "walk"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 100000
max_concurrent_requests = 1
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000002", completion_tokens = "0.000006" }]

[[models]]
id = "chat-dear"
kind = "chat"
description = "Two dollars a token"
owned_by = "walk"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 100000
max_concurrent_requests = 1000
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "2", completion_tokens = "2" }]

[[models]]
id = "chat-unpriced"
kind = "chat"
description = "Without a price yet"
owned_by = "walk"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 60
max_concurrent_requests = 5
prices = []

[[models]]
id = "chat-retired"
kind = "chat"
description = "Out of use"
owned_by = "walk"
created = 1704067200
max_tokens = 4096
max_requests_per_min = 60
max_concurrent_requests = 5
retired = true
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000002", completion_tokens = "0.000006" }]

[[volume_discounts]]
threshold = 1000000
discount = "0.05"

[[volume_discounts]]
threshold = 10000000
discount = "0.1"
"""


def write(folder):
    path = folder / "catalog.toml"
    path.write_text(CATALOG + MODELS)
    return path


def extend(path):
    """Adds one model to the catalog."""
    more = MODELS.split("[[models]]")[1].replace("chat-1", "chat-3")
    path.write_text(CATALOG + MODELS + "\n[[models]]" + more)


def add_upstreams(path, port):
    """Adds upstreams, and a model for each outcome of a call."""
    text = CATALOG + MODELS
    server = f"http://127.0.0.1:{port}/v1"
    # Nothing listens on port 9, the discard port.
    for name, kind, url in [("demo", "demo", None), ("engine", "vllm", server), ("single", "llamacpp", server),
                            ("down", "vllm", "http://127.0.0.1:9/v1")]:
        text += f'\n[[upstreams]]\nid = "{name}"\nkind = "{kind}"\n' + (f'url = "{url}"\n' if url else "")
    for name, upstream in [("demo", "demo"), ("down", "down"), ("busy", "engine"), ("late", "engine"), ("cut", "engine"),
                           ("refused", "engine"), ("single", "single")]:
        model = MODELS.split("[[models]]")[1].replace("chat-1", f"gate-{name}")
        text += f'\n[[models]]{model}routes = [{{ upstream = "{upstream}", model = "{name}" }}]\n'
    vectors = MODELS.split("[[models]]")[3].replace("embed-1", "gate-vectors")
    path.write_text(text + f'\n[[models]]{vectors}routes = [{{ upstream = "demo" }}]\n')
