"""A proxy in front of tollkeeper, which records the requests of clients, and a proxy that replaces all other
servers."""

import gzip
import http.client
import http.server
import json
import time

from stub import Server


class Request:
    """A request of a client, with its response."""

    def __init__(self, method, path, headers):
        self.method, self.path, self.headers = method, path, headers
        self.status = self.answer_headers = self.code = self.message = self.at = None

    def __str__(self):
        return f"{self.method} {self.path} {self.status or 'unanswered'}{f' {self.code}' if self.code else ''}"


class Recorder:
    """A proxy on 127.0.0.1 in front of tollkeeper. It records each request, and forwards everything unchanged."""

    def __init__(self, port):
        self.requests, self.upstream = [], port
        self.server = Server(type("Passing", (Passing,), {"recorder": self}))
        self.port, self.stop = self.server.server_port, self.server.stop


HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "te", "trailer")


class Passing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def pass_on(self):
        request = Request(self.command, self.path, dict(self.headers))
        self.recorder.requests.append(request)
        body = self.body()
        connection = http.client.HTTPConnection("127.0.0.1", self.recorder.upstream, timeout=120)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        is_upgrade = "upgrade" in self.headers
        for name, value in self.headers.items():
            if name.lower() not in (*HOP_BY_HOP, "content-length") or is_upgrade and name.lower() == "connection":
                connection.putheader(name, value)
        if body or self.command in ("POST", "PUT"):
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body or None)
        answer = connection.getresponse()
        request.answer_headers = answer.headers
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if is_upgrade or answer.headers.get("connection") == "close":
            self.send_header("connection", "close")
            self.close_connection = True
        try:
            self.pass_body(answer, request)
        finally:
            connection.close()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = pass_on

    def body(self):
        if "chunked" in self.headers.get("transfer-encoding", ""):
            whole = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def pass_body(self, answer, request):
        has_body = self.command != "HEAD" and answer.status not in (204, 304)
        is_chunked = has_body and "content-length" not in answer.headers
        if is_chunked:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        # The status is recorded after the head was sent. The client can't have shown the refusal earlier.
        request.status, request.at = answer.status, time.monotonic()
        whole = b""
        while has_body and (piece := answer.read1(65536)):
            if answer.status >= 400:
                whole += piece
                read_error(request, whole)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")


def read_error(request, body):
    """Records the code and the message of a refusal."""
    try:
        if request.answer_headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        error = json.loads(body)["error"]
        request.code, request.message = error["code"], error["message"]
    except (ValueError, KeyError, TypeError, EOFError):
        pass


class Outside:
    """A proxy that replaces the internet. It refuses all connections, and records the hosts."""

    def __init__(self):
        self.hosts = []
        outside = self

        class Refusing(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_CONNECT(self):
                outside.hosts.append(self.path.rsplit(":", 1)[0])
                self.send_error(403)

            def do_GET(self):
                outside.hosts.append(self.path.split("/")[2] if "://" in self.path else self.path)
                self.send_error(403)

            do_POST = do_HEAD = do_GET

        self.server = Server(Refusing)
        self.url, self.stop = f"http://127.0.0.1:{self.server.server_port}", self.server.stop
