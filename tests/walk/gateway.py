"""Model calls through the gateway, to the demo and to servers that fail."""

import http.server
import json
import threading

import catalog
from installation import until

EVENT = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}],
         "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}


class Engine(http.server.BaseHTTPRequestHandler):
    """Fails as the name of the requested model asks for."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        model = json.loads(self.rfile.read(int(self.headers["content-length"])))["model"]
        self.close_connection = True
        if model == "cut":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(f"data: {json.dumps(EVENT)}\n\n".encode())
            return
        body = b'{"error": {"message": "The prompt is too long.", "type": "BadRequestError", "code": 400}}'
        self.send_response({"busy": 429, "late": 504, "refused": 400}[model])
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def walk(w):
    w.chapter("model calls")
    engine = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    catalog.add_upstreams(w.catalog, engine.server_port)
    reload(w, True)
    calls(w)
    engine.shutdown()
    catalog.write(w.catalog.parent)
    reload(w, False)


def reload(w, has_models):
    """Reloads the catalog, and waits until the models of this chapter are available, or no longer available."""
    w.installation.command("catalog", "reload")
    bearer = [("authorization", f"Bearer {w.bearers['ada']}")]

    def is_in_force():
        prices = w.installation.send("public", "GET", "/v1/billing/pricing", bearer)
        return ("gate-demo" in prices.text) == has_models

    until(is_in_force, "the catalog is in force")


def calls(w):
    path = "/v1/chat/completions"
    call = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 3}
    w.post(path, {"model": "gate-demo", **call}, "chat key")
    w.post(path, {"model": "gate-demo", **call, "stream": True, "stream_options": {"include_usage": True}}, "chat key")
    for model in ["chat-1", "gate-down", "gate-busy", "gate-late", "gate-refused", "nothing"]:
        w.post(path, {"model": model, **call}, "chat key")
    w.post(path, {"model": "gate-cut", **call, "stream": True}, "chat key")
    w.post(path, {"model": "gate-single", **call, "n": 2}, "chat key")
    w.post(path, {"model": "gate-demo", "messages": [], "stream": "yes"}, "chat key")
    w.post(path, {"model": "gate-demo", **call}, "ada", note="for no project")
    w.post(path, {"model": "gate-demo", **call}, "chat key", headers=[("content-encoding", "deflate")])
    others(w, call)


def others(w, chat):
    """Calls the operations other than chat: each once successfully, once as a stream, and once refused."""
    demo, down, missing = {"model": "gate-demo"}, {"model": "gate-down"}, {"model": "nothing"}
    prompt, question = {"prompt": "Once upon", "max_tokens": 3}, {"input": "Who are you?", "max_output_tokens": 3}
    w.post("/v1/completions", {**demo, **prompt}, "chat key")
    w.post("/v1/completions", {**demo, **prompt, "stream": True}, "chat key")
    w.post("/v1/completions", {**down, **prompt}, "chat key")
    w.post("/v1/completions", {**demo, "prompt": []}, "chat key")
    w.post("/v1/embeddings", {"model": "gate-vectors", "input": ["one", "two words"], "dimensions": 2}, "whole key")
    w.post("/v1/embeddings", {**demo, "input": "one"}, "whole key")
    w.post("/v1/embeddings", {"model": "gate-vectors", "input": "one"}, "chat key")
    w.post("/v1/responses", {**demo, **question}, "chat key")
    w.post("/v1/responses", {**demo, **question, "stream": True}, "chat key")
    w.post("/v1/responses", {**demo, **question, "previous_response_id": "resp_1"}, "chat key")
    w.post("/v1/messages", {**demo, **chat}, "chat key")
    w.post("/v1/messages", {**demo, **chat, "stream": True}, "chat key")
    w.post("/v1/messages", {**missing, **chat}, "chat key")
    w.post("/v1/messages", {**demo, "messages": "hi"}, "chat key")
    w.post("/v1/messages", {**demo, **chat, "max_tokens": 32_000}, "chat key", note="with a limit above the model's")
    w.post("/v1/messages/count_tokens", {**demo, "messages": chat["messages"]}, "chat key")
    w.post("/v1/messages/count_tokens", {**missing, "messages": chat["messages"]}, "chat key")
    w.post("/v1/messages", {**demo, **chat}, "chat key", headers=[("x-api-key", "another")])
    w.get("/v1/responses", "chat key", headers=[("connection", "Upgrade"), ("upgrade", "websocket")])
    w.get("/v1/models", "whole key", headers=[("anthropic-version", "2023-06-01")])
    w.post("/v1beta/models/gate-demo:generateContent", {"contents": []}, "chat key")
    w.get("/api/hello")
