"""Every page in every state, light and dark, at three widths."""

from concurrent.futures import ThreadPoolExecutor

import table
from browser import WIDTHS

MAX_PAGE, MAX_FILES, MAX_REQUESTS = 50_000, 24_000, 4


def check_table(routes, wrong):
    """Holds the table against the console's own: a new page can't be forgotten."""
    gets = {path for method, path in routes if method == "GET"} - table.OTHERS
    wrong += [f"{path} has no states in tests/browser/console/table.py" for path in sorted(gets - set(table.PAGES))]
    wrong += [f"{path} of tests/browser/console/table.py is no page" for path in sorted(set(table.PAGES) - gets)]
    posts = {path for method, path in routes if method == "POST"}
    for path, states in table.PAGES.items():
        if path in posts and not any(state.name == "mistake" for state in states):
            wrong.append(f"{path} has a form, and no state with a mistake")
    return gets


def run(browsers, world, routes, wanted):
    """Looks at every page, with a browser in each thread."""
    wrong = []
    there = check_table(routes, wrong) if routes else set(table.PAGES)
    for browser in browsers:
        browser.people = world.sign_in(browser)
        # So far away that what a script changes after the first paint is seen to move.
        browser.cdp("Network.emulateNetworkConditions", offline=False, latency=60, downloadThroughput=-1, uploadThroughput=-1)
    for pages in [table.PAGES, table.LAST]:
        todo = [(pattern, state) for pattern, states in pages.items() if pattern in there and wanted in pattern for state in states]
        # The order is that of the table, whoever is faster.
        found = [[] for _ in todo]
        next_one = iter(range(len(todo)))

        def work(browser):
            for index in next_one:
                found[index] = look_at(browser, world, *todo[index])

        with ThreadPoolExecutor(len(browsers)) as threads:
            list(threads.map(work, browsers))
        wrong += sum(found, [])
    return wrong


def look_at(browser, world, pattern, state):
    """Returns what is wrong with a page in a state."""
    name = f"{pattern.removeprefix('/console/').translate(str.maketrans('', '', '{}*')).replace('/', '.')}.{state.name}"
    wrong = []
    note = lambda where, found: wrong.extend(f"{name} {where}: {one}" for one in found)
    browser.become(browser.people[state.who])
    path = world.path(pattern, state.place) + state.query
    try:
        # What was sent isn't sent again: such a page is looked at as it is, at every width.
        if state.act:
            browser.size(1280)
            browser.open(path)
            browser.complaints(), browser.requests()
            state.act(browser, world)
        for width in WIDTHS:
            browser.size(width)
            if not state.act:
                browser.timed("open", browser.open, path)
            if not state.act or width == min(WIDTHS):
                note(width, check_load(browser, state, path))
            for scheme in ("light", "dark"):
                browser.size(width, scheme)
                note(f"{width} {scheme}", browser.timed("look", browser.look))
                note(f"{width} {scheme}", browser.timed("axe", browser.run_axe))
                browser.timed("pictures", browser.picture, f"{name}-{width}-{scheme}")
            note(width, [f"complaint: {one}" for one in browser.complaints(state.status)])
            note(width, foreign(browser, browser.requests()))
        browser.driver.execute_script("document.querySelector('[data-kept]')?.click()")
    except Exception as error:
        note("failed", [f"{type(error).__name__}: {str(error).splitlines()[0][:1500]}"])
    return wrong


def foreign(browser, requests):
    return [f"asks for {one}" for one in requests if not one.startswith(browser.url + "/")]


def check_load(browser, state, path):
    """Returns what is wrong with how a page came."""
    wrong = []
    figures = browser.timed("figures", browser.figures)
    if figures["status"] != state.status:
        wrong.append(f"status {figures['status']}, not {state.status}: {browser.text()[:300]}")
    if figures["page"] > MAX_PAGE or figures["files"] > MAX_FILES:
        wrong.append(f"{figures['page']} bytes, with {figures['files']} of style and script")
    requests = browser.requests()
    wrong += foreign(browser, requests)
    if not state.act and not 0 < len(requests) <= MAX_REQUESTS:
        wrong.append(f"{len(requests)} requests: {requests}")
    if figures["shifts"] and not state.act:
        # A busy browser paints a page before it has read all of it, and a table grows. What moves again is a mistake.
        browser.open(path)
        wrong += [f"layout shift {shift}" for shift in browser.figures()["shifts"]]
        browser.requests()
    text = " ".join(browser.text().split())
    return wrong + [f"{words!r} isn't there: {text[:300]}" for words in state.says if words not in text]
