"""Runs Schemathesis against a running server: `run.py SETUP`, where SETUP is JSON with addresses, ids and credentials (see
tests/http/openapi/schemathesis.rs). Prints `nothing found` and exits with 0 if every check of every run passes."""

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SETUP = json.loads(sys.argv[1])
HERE = pathlib.Path(__file__).parent
SERVICE = "^/(service/|metrics)"
# These checks are replaced by those in hooks.py, which add exceptions that are more specific than a status.
NARROWED = "positive_data_acceptance,negative_data_rejection,ensure_resource_availability"

# Path parameters with the id of an existing object. DELETE gets ids that don't exist, so that the objects remain. The
# stateful run deletes objects that it has created.
PLACE = ["organization_id", "project_id", "key_id", "member_id", "invoice_id", "budget_id", "payment_id", "invitation_id", "reservation_id", "session_id",
         "connection_id", "model_id"]


def quoted(text):
    return json.dumps(text)


def configuration(pinned):
    lines = [f'hooks = {quoted(str(HERE / "hooks.py"))}', f'seed = {SETUP["seed"]}']
    if pinned:
        lines += ["[parameters]", *(f'"path.{name}" = {quoted(SETUP[name])}' for name in PLACE)]
    # PostgreSQL doesn't allow NUL in texts, so the API refuses it with 400. No keyword of a schema expresses this.
    # bad_input.rs tests it.
    lines += ["[generation]", "allow-x00 = false"]
    for scheme in ("accessToken", "refreshToken", "bearer", "modelKey", "serviceToken"):
        lines += [f"[auth.openapi.{scheme}]", f"bearer = {quoted(SETUP[scheme])}"]
    lines += ["[auth.openapi.proxyToken]", f'api_key = {quoted(SETUP["serviceToken"])}']
    if pinned:
        nobody = {name: f"{prefix}_00000000000000000000000000" for name, prefix in (
            ("organization_id", "org"), ("project_id", "proj"), ("key_id", "key"), ("member_id", "user"),
            ("budget_id", "budget"), ("invitation_id", "inv"), ("reservation_id", "res"))}
        lines += ["[[operations]]", 'include-method = "DELETE"', "[operations.parameters]"]
        lines += [f'"path.{name}" = {quoted(value)}' for name, value in nobody.items()]
    return "\n".join(lines) + "\n"


def run(name, address, pinned, phases, filters, times=1):
    folder = pathlib.Path(tempfile.mkdtemp(dir=SETUP["folder"]))
    (folder / "schemathesis.toml").write_text(configuration(pinned))
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "schemathesis.toml"),
        "run", SETUP["document"], "--url", f"http://{address}", "--checks", "all", "--exclude-checks", NARROWED, "--phases", phases,
        "--max-examples", str(SETUP["examples"] * times), "--generation-deterministic",
        "--continue-on-failure", "--no-shrink", "--no-color", "--warnings", "off", *filters,
    ]
    if report := os.environ.get("TOLLKEEPER_TEST_SCHEMATHESIS_REPORT"):
        command += ["--report", "ndjson", "--report-ndjson-path", f"{report}/{name}.ndjson"]
    environment = {**os.environ, "TOLLKEEPER_SETUP": sys.argv[1]}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=3600)
    print(f"== {name}\n{ended.stdout}{ended.stderr}", file=sys.stderr)
    return ended.returncode == 0


PUBLIC, ON_SERVICE = ["--exclude-path-regex", SERVICE], ["--include-path-regex", SERVICE]
with concurrent.futures.ThreadPoolExecutor() as pool:
    runs = [
        pool.submit(run, "public", SETUP["public"], True, "examples,coverage,fuzzing", PUBLIC),
        pool.submit(run, "stateful", SETUP["public"], False, "stateful", PUBLIC, times=4),
        pool.submit(run, "service", SETUP["service"], True, "examples,coverage,fuzzing,stateful", ON_SERVICE),
    ]
if not all(one.result() for one in runs):
    sys.exit(1)
print("nothing found")
