"""Checks a file with focus-validator and the rules of FOCUS 1.2 that it includes, without network access.

Prints a JSON object: the number of rules that hold, and the ids of those that don't. A rule of several parts is left out
where the part is named.
"""

import json
import os
import re
import subprocess
import sys

import focus_validator

# Facts about the service: prices by unit, in one currency; no commitments, regions, zones or tags. Prices are
# shown to customers, but not published.
CRITERIA = [
    "ACCOUNT_NAMING_SUPPORTED",
    "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED",
    "MULTIPLE_BILLING_ACCOUNT_TYPES_SUPPORTED",
    "MULTIPLE_PRICING_CATEGORIES_SUPPORTED",
    "MULTIPLE_SUB_ACCOUNT_TYPES_SUPPORTED",
    "NEGOTIATED_PRICING_SUPPORTED",
    "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED",
    "SUB_ACCOUNT_SUPPORTED",
    "UNIT_PRICING_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED",
]

file = os.path.abspath(sys.argv[1])
# The validator reads its list of currencies relative to the folder of its package.
packages = os.path.dirname(os.path.dirname(focus_validator.__file__))
command = [sys.executable, "-m", "focus_validator.main", "--data-file", file, "--validate-version", "1.2", "--block-download",
           "--applicability-criteria", ",".join(CRITERIA)]
ended = subprocess.run(command, cwd=packages, capture_output=True, text=True)
totals = re.search(r"Total: \d+ \| Pass: (\d+) \| Fail: (\d+)", ended.stdout)
if totals is None:
    sys.exit(ended.stdout + ended.stderr)
failed = dict(re.findall(r"^❌ (\S+): FAIL +\((.*)\)$", ended.stdout, re.MULTILINE))
if len(failed) != int(totals.group(2)):
    sys.exit(f"{totals.group(2)} rules failed, {len(failed)} were read:\n{ended.stdout}")
print(json.dumps({"passed": int(totals.group(1)), "broken": sorted(failed)}))
