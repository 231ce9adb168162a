"""Checks every page in every state at three widths, in light and in dark mode. Runs axe at one of the widths."""

import table
from browser import WIDTHS
from looks import COLOR_RULES, RULES

# The width at which axe runs. Names, roles and ids are the same at each width. Targets and scrolling areas are most
# difficult at the narrowest width, where hidden parts can't name anything either. Wider pages show more text, so `LOOK`
# checks contrast, targets and names at each width.
AXE_WIDTH = min(WIDTHS)
# No test compares the pictures. For people, the narrowest and the widest are enough.
PICTURES = [(320, "light"), (1280, "dark")]
MAX_PAGE, MAX_FILES, MAX_REQUESTS = 50_000, 24_000, 4


def check_table(routes, wrong):
    """Compares the table with the routes of the console, so that no new page can be forgotten. Without states in the
    table, a page of an organization or a project is checked empty and full if it has no form."""
    gets = {path for method, path in routes if method == "GET"} - table.OTHERS
    posts = {path for method, path in routes if method == "POST"}
    for path in sorted(gets - set(table.PAGES)):
        if path in posts or not table.has_usual_states(path):
            wrong.append(f"{path} has no states in tests/browser/console/table.py")
        else:
            table.PAGES[path] = [table.empty(), table.full()]
    wrong += [f"{path} of tests/browser/console/table.py isn't a page" for path in sorted(set(table.PAGES) - gets)]
    for path, states in table.PAGES.items():
        if path in posts and not any(state.name == "mistake" for state in states):
            wrong.append(f"{path} has a form, and no state with a mistake")
    return gets


def states(pages, there, wanted):
    return [(pattern, state) for pattern, states in pages.items() if pattern in there and wanted in pattern for state in states]


def look_at(browser, world, pattern, state):
    """Returns the errors of a page in a state."""
    name = f"{pattern.removeprefix('/console/').translate(str.maketrans('', '', '{}*')).replace('/', '.')}.{state.name}"
    wrong = []
    note = lambda where, found: wrong.extend(f"{name} {where}: {one}" for one in found)
    browser.become(world.people[state.who])
    # The delay is long enough that changes by a script after the first paint count as layout shifts.
    browser.delay(60)
    browser.requests()
    path = world.path(pattern, state.place) + state.query
    try:
        # A form is submitted only once. Its response is checked at each width without a reload.
        if state.act:
            browser.size(1280)
            browser.open(path)
            browser.complaints(), browser.requests()
            browser.timed("act", state.act, browser, world)
        for width in WIDTHS:
            browser.size(width)
            if not state.act:
                browser.timed("open", browser.open, path)
            if not state.act or width == min(WIDTHS):
                note(width, browser.timed("load", check_load, browser, state, path))
            known = []
            for scheme in ("light", "dark"):
                browser.choose(scheme)
                found = browser.timed("look", browser.look)
                if width == AXE_WIDTH:
                    found += browser.timed("axe", browser.run_axe, RULES if scheme == "light" else COLOR_RULES)
                note(f"{width} {scheme}", [one for one in found if one not in known])
                known += found
                if (width, scheme) in PICTURES:
                    browser.timed("pictures", browser.picture, f"{name}-{width}-{scheme}")
            note(width, [f"complaint: {one}" for one in browser.complaints(state.status)])
            note(width, check_requests(browser, state))
        browser.driver.execute_script("document.querySelector('[data-kept]')?.click()")
    except Exception as error:
        note("failed", [f"{type(error).__name__}: {str(error).splitlines()[0][:1500]}"])
    return wrong


def check_load(browser, state, path):
    """Returns the errors in how a page loaded."""
    wrong = []
    load = browser.load()
    if load["status"] != state.status:
        wrong.append(f"status {load['status']}, not {state.status}: {load['text'][:300]}")
    if load["page"] > MAX_PAGE or load["files"] > MAX_FILES:
        wrong.append(f"{load['page']} bytes, with {load['files']} of style and script")
    if not state.act:
        wrong += [f"layout shift {shift}" for shift in load["shifts"]]
    text = " ".join(load["text"].split())
    return wrong + [f"{words!r} isn't there: {text[:300]}" for words in state.says if words not in text]


def check_requests(browser, state):
    """Returns the errors in the requests since the page was opened."""
    requests = browser.timed("requests", browser.requests)
    wrong = [f"asks for {one}" for one in requests if not one.startswith(browser.url + "/")]
    if not state.act and not 0 < len(requests) <= MAX_REQUESTS:
        wrong.append(f"{len(requests)} requests: {requests}")
    return wrong
