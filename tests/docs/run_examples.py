"""Runs the Python examples of the API reference, unchanged, in one process.

The one argument is a JSON file: a list of objects with the name, the source and the environment of an example. Prints
how many ran, or each that failed.
"""

import contextlib
import io
import json
import os
import sys
import traceback

with open(sys.argv[1]) as file:
    examples = json.load(file)
failures = []
for example in examples:
    os.environ.update(example["environment"])
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(example["source"], example["name"], "exec"), {})
        assert output.getvalue().strip(), "it printed nothing"
    except Exception as error:
        response = getattr(error, "response", None)
        answer = response.text[:500] if response is not None else ""
        failures.append(f"{example['name']}: {traceback.format_exc()}\n{answer}\n{example['source']}")
print("\n".join(failures) or f"{len(examples)} examples ran")
