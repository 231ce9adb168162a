"""Mutation tests with a single build: the code contains every mutant, and an environment variable activates one of them.

    mutants.py plant OUT FILE...     writes the files with their mutants below OUT, and OUT/mutants.json
    mutants.py weed OUT              reads the compiler's messages (cargo --message-format=json) from standard input, and
                                     removes the mutants that don't compile; exits with 1 after any other error
    mutants.py run OUT BINARY SCOPE  runs the tests of BINARY once per mutant, and lists the mutants that no test detects

The mutants are those of `cargo mutants`: return values, comparisons, arithmetic, `&&` and `||`, `!` and `-`, arms of a match
with a wildcard, and guards. `cargo mutants` builds the crate for each mutant, which takes hours. Additional mutants target
access checks: a removed check (`caller.confine(…)?;`), the result of a closure of `filter` and similar methods, and a
condition that isn't a comparison.
"""

import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

OPERATORS = {
    "==": ["!="], "!=": ["=="],
    "<": ["==", ">", "<="], ">": ["==", "<", ">="], "<=": [">"], ">=": ["<"],
    "&&": ["||"], "||": ["&&"],
    "+": ["-", "*"], "-": ["+", "/"], "*": ["+", "/"], "/": ["%", "*"], "%": ["/", "+"],
    "&": ["|", "^"], "|": ["&", "^"], "^": ["|", "&"], "<<": [">>"], ">>": ["<<"],
    "+=": ["-=", "*="], "-=": ["+=", "/="], "*=": ["+=", "/="], "/=": ["%=", "*="], "%=": ["/=", "+="],
    "&=": ["|=", "^="], "|=": ["&=", "^="], "^=": ["|=", "&="],
}
# Methods with a predicate. A mutant replaces its result with true or false.
DECIDES = {"filter", "is_some_and", "is_none_or", "is_ok_and", "any", "all", "find", "position", "retain", "take_while", "skip_while"}
# Values for types that have no default.
KNOWN = {
    "AccessDoc": ['AccessDoc::new(None, "")'],
    "Trail": ["trail::Trail::system()"],
    "OrganizationRole": ["OrganizationRole::Member", "OrganizationRole::Owner"],
    "ProjectRole": ["ProjectRole::Viewer", "ProjectRole::Owner"],
    "IpAddr": ["IpAddr::from([192, 0, 2, 1])"],
    "Caller": ["Caller::person(UserId::from_parts(kernel::clock::Time::from_unix_ms(0), 0))"],
    "Visitor": ["Visitor { trail: trail::Trail::system() }"],
    "ServiceScope": ["ServiceScope(())"],
}
INTEGERS = {f"{sign}{size}" for sign in "iu" for size in ("8", "16", "32", "64", "128", "size")}


def values(kind):
    """Returns the alternative return values for a type."""
    kind = " ".join(kind.split())
    if kind in ("", "()"):
        return ["()"]
    if kind == "bool":
        return ["true", "false"]
    if kind in INTEGERS:
        return ["0", "1"] + (["-1"] if kind.startswith("i") else [])
    if kind == "String":
        return ["String::new()", '"xyzzy".into()']
    if re.fullmatch(r"&('\w+ )?str", kind):
        return ['""', '"xyzzy"']
    if kind.startswith("impl ") or kind.startswith("!"):
        return []
    if kind in KNOWN:
        return KNOWN[kind]
    if re.fullmatch(r"\w+Id", kind):
        return [f"{kind}::from_parts(crate::clock::Time::from_unix_ms(0), 0)"]
    if inner := re.fullmatch(r"Option<(.*)>", kind):
        return ["None"] + [f"Some({value})" for value in values(inner[1])]
    if inner := re.fullmatch(r"(?:fmt::)?Result(?:<(.*)>)?", kind):
        good = split(inner[1] or "()")[0]
        return [f"Ok({value})" for value in values(good)]
    if inner := re.fullmatch(r"Vec<(.*)>", kind):
        return ["vec![]"] + [f"vec![{value}]" for value in values(inner[1])]
    if inner := re.fullmatch(r"\((.*)\)", kind):
        parts = [values(part) for part in split(inner[1])]
        return [f"({', '.join(some)})" for some in itertools.islice(itertools.product(*parts), 8)]
    if inner := re.fullmatch(r"&('\w+ )?(mut )?(.*)", kind):
        return [f"Box::leak(Box::new({value}))" for value in values(inner[3])]
    return ["Default::default()"]


def split(text):
    """Splits a list of types, which may contain commas themselves."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "<([") - (char in ">)]")
        if char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [part for part in [*parts, text[start:].strip()] if part]


class Planter:
    def __init__(self, dead):
        import tree_sitter
        import tree_sitter_rust

        self.parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
        self.dead = dead
        self.mutants = []

    def file(self, name, source):
        self.name, self.source, self.where = name, source.encode(), []
        return self.node(self.parser.parse(self.source).root_node)

    def mutant(self, node, what):
        """Returns the number of a new mutant, or None if it is known not to compile."""
        number = len(self.mutants) + 1
        line = node.start_point[0] + 1
        column = node.start_point[1] + 1
        self.mutants.append(
            {"number": number, "file": self.name, "line": line, "column": column, "in": "::".join(self.where), "what": what}
        )
        return None if number in self.dead else number

    def text(self, node):
        return self.source[node.start_byte:node.end_byte].decode()

    def node(self, node):
        """Returns the text of a node with its mutants."""
        kind = node.type
        if kind in ("token_tree", "attribute_item", "macro_invocation", "const_item", "static_item", "macro_definition"):
            return self.text(node)
        if kind in ("mod_item", "function_item", "impl_item") and self.is_test(node):
            return self.text(node)
        named = node.child_by_field_name("name") or node.child_by_field_name("type")
        steps = kind in ("mod_item", "function_item", "impl_item")
        if steps:
            self.where.append(self.text(named).split("<")[0])
        result = getattr(self, kind, self.plain)(node)
        if steps:
            self.where.pop()
        return result

    def is_test(self, node):
        before = node.prev_named_sibling
        while before is not None and before.type in ("attribute_item", "line_comment"):
            if before.type == "attribute_item" and re.search(r"cfg\(test\)|#\[test\]", self.text(before)):
                return True
            before = before.prev_named_sibling
        return False

    def plain(self, node, replaced=None):
        """Returns the text of an unchanged node whose children have mutants."""
        parts, at = [], node.start_byte
        for child in node.children:
            parts.append(self.source[at:child.start_byte].decode())
            new = (replaced or {}).get(child.id)
            parts.append(self.node(child) if new is None else new)
            at = child.end_byte
        parts.append(self.source[at:node.end_byte].decode())
        return "".join(parts)

    def choose(self, node, variants, own):
        """Returns an expression that has the value of a variant while its mutant is active."""
        text = ""
        for what, variant in variants:
            if number := self.mutant(node, what):
                text += f"/*<{number}*/if crate::mutant({number}) {{ {variant} }} else/*>{number}*/ "
        return f"({text}{{ {own} }})" if text else own

    def function_item(self, node):
        body = node.child_by_field_name("body")
        returns = node.child_by_field_name("return_type")
        kind = self.text(returns) if returns else ""
        first = ""
        inside = self.text(body).strip("{} \n")
        for value in values(kind):
            if inside in ("", value):
                continue
            if number := self.mutant(node, f"returns {value}"):
                first += f" /*<{number}*/if crate::mutant({number}) {{ return {value}; }}/*>{number}*/"
        new = self.plain(body)
        text = self.plain(node, {body.id: "{" + first + new[1:]})
        # A constant function can't read the environment.
        return re.sub(r"^((?:pub(?:\([^)]*\))? )?)const fn ", r"\1fn ", text)

    def binary_expression(self, node):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator").type
        replaced = {child.id: self.node(child) for child in (left, right)}
        own = self.plain(node, replaced)
        a, b = self.text(left), self.text(right)
        if "let " in a or "let " in b:
            return own
        return self.choose(node, [(f"{operator} is {new}", f"{a} {new} {b}") for new in OPERATORS.get(operator, [])], own)

    compound_assignment_expr = binary_expression

    def unary_expression(self, node):
        operator, inside = node.children[0].type, node.children[1]
        own = self.plain(node)
        if operator not in "!-" or (inside.type == "integer_literal"):
            return own
        return self.choose(node, [(f"without {operator}", self.text(inside))], own)

    def expression_statement(self, node):
        """Removes a call, a check that ends with `?`, or an assignment. Keeps a `return` and the last
        word of a block."""
        inside = node.children[0]
        own = self.plain(node)
        if not self.text(node).endswith(";") or inside.type not in ("call_expression", "try_expression", "assignment_expression"):
            return own
        what = " ".join(self.text(inside).split())
        if number := self.mutant(node, f"without `{what if len(what) < 60 else what[:57] + '...'}`"):
            return f"/*<{number}*/if !crate::mutant({number}) /*>{number}*/{{ {own} }}"
        return own

    def call_expression(self, node):
        """Makes the predicate of `filter` and similar methods always true or always false."""
        called, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if called.type != "field_expression" or self.text(called.child_by_field_name("field")) not in DECIDES:
            return self.plain(node)
        closures = [child for child in arguments.children if child.type == "closure_expression"]
        return self.plain(node, {arguments.id: self.plain(arguments, {one.id: self.decider(one) for one in closures})})

    def decider(self, closure):
        body = closure.child_by_field_name("body")
        name = self.text(closure.parent.parent.child_by_field_name("function").child_by_field_name("field"))
        variants = [(f"`{name}` asks nothing: {word}", word) for word in ("true", "false")]
        return self.plain(closure, {body.id: self.choose(body, variants, self.node(body))})

    def if_expression(self, node):
        """Changes a condition without an operator, which no other mutant changes."""
        condition = node.child_by_field_name("condition")
        if condition.type not in ("identifier", "field_expression", "call_expression", "await_expression", "try_expression"):
            return self.plain(node)
        variants = [(f"the condition is {word}", word) for word in ("true", "false")]
        return self.plain(node, {condition.id: self.choose(condition, variants, self.node(condition))})

    def match_expression(self, node):
        block = node.child_by_field_name("body")
        arms = [arm for arm in block.children if arm.type == "match_arm"]
        pattern = lambda arm: arm.child_by_field_name("pattern")
        catches_all = any(self.text(pattern(arm)) == "_" for arm in arms)
        replaced = {arm.id: self.arm(arm, pattern(arm), catches_all) for arm in arms}
        return self.plain(node, {block.id: self.plain(block, replaced)})

    def arm(self, arm, pattern, catches_all):
        guard = pattern.child_by_field_name("condition")
        shape = self.source[pattern.start_byte:guard.start_byte if guard else pattern.end_byte].decode()
        shape = re.sub(r"\s*if\s*$", "", shape) if guard else shape
        conditions = []
        if catches_all and self.text(pattern) != "_":
            if number := self.mutant(arm, f"without the arm {shape}"):
                conditions.append(f"/*<{number}*/!crate::mutant({number})/*>{number}*/")
        if guard:
            variants = [(f"guard is {word}", word) for word in ("true", "false")]
            conditions.append(self.choose(guard, variants, self.node(guard)))
        return self.plain(arm, {pattern.id: shape + (f" if {' && '.join(conditions)}" if conditions else "")})


def plant(out, names):
    out = pathlib.Path(out)
    dead_file = out / "dead.json"
    planter = Planter(set(json.loads(dead_file.read_text())) if dead_file.exists() else set())
    for name in names:
        text = planter.file(name, pathlib.Path(name).read_text())
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    (out / "mutants.json").write_text(json.dumps(planter.mutants, indent=1))
    print(f"{len(planter.mutants)} mutants, {len(planter.dead)} of which don't compile")


def weed(out):
    out = pathlib.Path(out)
    dead_file = out / "dead.json"
    dead = set(json.loads(dead_file.read_text())) if dead_file.exists() else set()
    found, strange = set(), []
    for line in sys.stdin:
        message = json.loads(line).get("message") if line.startswith("{") else None
        if not isinstance(message, dict) or message.get("level") != "error":
            continue
        numbers = {number for span in message["spans"] for number in around(out, span)}
        found |= numbers
        if not numbers and message["spans"]:
            strange.append(message["rendered"])
    print("".join(strange), f"{len(found)} more don't compile")
    dead_file.write_text(json.dumps(sorted(dead | found)))
    return 1 if strange and not found else 0


def around(out, span):
    """Returns the innermost mutant that contains the position of an error."""
    file = next((path for path in out.rglob("*.rs") if str(path).endswith(span["file_name"])), None)
    if file is None or not span["is_primary"]:
        return []
    source = file.read_bytes()
    best = None
    for found in re.finditer(rb"/\*<(\d+)\*/", source[:span["byte_start"] + 1]):
        end = source.find(b"/*>" + found[1] + b"*/", found.end())
        if end >= span["byte_start"]:
            best = int(found[1])
    return [best] if best else []


def run(out, binaries, scope):
    """`binaries`: lines of a name and a path. `scope`: filters of tests, where {module} stands for the module of the mutant's file;
    groups are separated by `/`, and `money@` before a group names its binary if several exist."""
    out = pathlib.Path(out)
    binaries = dict(line.split(maxsplit=1) for line in binaries.splitlines())
    dead = set(json.loads((out / "dead.json").read_text())) if (out / "dead.json").exists() else set()
    mutants = [one for one in json.loads((out / "mutants.json").read_text()) if one["number"] not in dead]
    only = os.environ.get("ONLY")
    mutants = [one for one in mutants if not only or re.search(only, f"{one['number']} {one['file']} {one['what']}")]
    mutants = [one for one in mutants if one["number"] >= int(os.environ.get("FROM", "0"))]
    limit = float(os.environ.get("LIMIT", "120"))

    # The minimized input of a failing property isn't needed.
    environment = {**os.environ, "PROPTEST_MAX_SHRINK_ITERS": "0", "PROPTEST_FAILURE_PERSISTENCE": "off"}

    def passes(number, filters):
        """Returns an empty string if all tests pass. Stops at the first failure."""
        name, at, first = filters[0].rpartition("@")
        binary = os.path.abspath(binaries[name] if at else next(iter(binaries.values())))
        filters = [first, *filters[1:]]
        running = subprocess.Popen(
            [binary, *filters], cwd=out, env={**environment, "MUTANT": str(number)},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        alarm = threading.Timer(limit, running.kill)
        alarm.start()
        began, passed, word = time.monotonic(), 0, ""
        for line in running.stdout:
            passed += line.endswith("... ok\n")
            if line.endswith("FAILED\n"):
                word = "caught"
                running.kill()
        code = running.wait()
        alarm.cancel()
        if word == "" and code != 0:
            word = "too long" if time.monotonic() - began >= limit else "caught"
        return word or ("" if passed else "no test")

    scopes = [part.split(",") for part in scope.split("/")]
    began = time.monotonic()
    for filters in scopes:
        if "{module}" not in filters and passes(0, filters) != "":
            sys.exit(f"without a mutant {filters} fails")

    def one(mutant):
        module = re.sub(r"^crates/\w+/src/|\.rs$|/tests\.rs$", "", mutant["file"]).replace("/", "::")
        for filters in scopes:
            word = passes(mutant["number"], [part.replace("{module}", module) for part in filters])
            if word in ("caught", "too long"):
                return mutant, word
        return mutant, "survives"

    counts, survivors = {}, []
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        for mutant, word in pool.map(one, mutants):
            counts[word] = counts.get(word, 0) + 1
            if word == "survives":
                survivors.append(mutant)
                print(f"{mutant['number']} {mutant['file']}:{mutant['line']}:{mutant['column']} {mutant['in']}: {mutant['what']}", flush=True)
    print(f"{len(mutants)} mutants in {time.monotonic() - began:.0f} s:", ", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if survivors else 0


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    sys.exit({"plant": lambda out, *names: plant(out, names), "weed": weed, "run": run}[what](*arguments))
