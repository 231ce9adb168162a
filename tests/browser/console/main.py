"""Starts a server and tests its console in a browser: python3 main.py PROGRAM FOLDER NODE_MODULES [PART …].

The routes of the console are read from standard input, one method and path per line. Without them, the table of states
isn't compared with the routes. Without a PART, everything runs. `matrix` can be limited to some pages, as in
`matrix:/api-keys`. `pictures` creates the pictures of docs/console.md, and `firefox` runs a journey in Firefox.
TOLLKEEPER_TEST_SCREENSHOTS=FOLDER stores two screenshots of every state.
"""

import pathlib
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

# The parent folder has modules that its programs share.
sys.path.append(str(pathlib.Path(__file__).parents[1]))

import firefox
import journey
import keyboard
import matrix
import no_script
import passkeys
import pictures
import slow
import table
from browser import Browser
from client import Client
from provider import Provider
from server import Server
from world import World

STORIES = {"journey": journey, "keyboard": keyboard, "no_script": no_script, "passkeys": passkeys, "slow": slow,
           "pictures": pictures, "firefox": firefox}
EACH_TIME = ["journey", "keyboard", "no_script", "passkeys", "slow"]
BROWSERS = 2


def main():
    # When this program is terminated, it also stops the server and the browsers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    program, folder, modules, *parts = sys.argv[1:]
    routes = [] if sys.stdin.isatty() else [tuple(line.split()) for line in sys.stdin]
    server = Server(program, folder)
    client = Client(server.url, server.service, server.data)
    world = World(client, server, busyness=8 if "pictures" in parts else 1)
    wrong, browsers = [], []
    try:
        timed("world", world.fill)
        first, last = plan(parts or [*EACH_TIME, "matrix"], world, routes, modules, wrong)
        for number in range(min(BROWSERS, len(first) + len(last))):
            browsers.append(Browser(server.url, server.folder / f"browser-{number}", modules))
        for tasks in [first, last]:
            wrong += timed("browsers", do_all, tasks, browsers, client, world)
    finally:
        for browser in browsers:
            browser.driver.quit()
        if world.provider:
            world.provider.stop()
        server.stop()
    kinds = sorted({what for browser in browsers for what in browser.seconds})
    print(" ".join(f"{what}: {sum(browser.seconds.get(what, 0) for browser in browsers):.1f} s" for what in kinds))
    if wrong:
        raise SystemExit("\n".join([f"{len(wrong)} mistakes:", *wrong]))


def timed(what, act, *arguments):
    start = time.monotonic()
    found = act(*arguments)
    print(f"{what}: {time.monotonic() - start:.1f} s", flush=True)
    return found


def plan(parts, world, routes, modules, wrong):
    """Returns the tasks of the parts, and the tasks that have to run after them."""
    first, last = [], []
    for part in parts:
        name, _, wanted = part.partition(":")
        if name != "matrix":
            first.append(lambda *all, name=name: timed(name, tell, name, *all))
            continue
        if not world.provider:
            world.connect(Provider(world.server, modules))
            world.people = world.sign_in()
        there = matrix.check_table(routes, wrong) if routes else set(table.PAGES)
        for tasks, pages in [(first, table.PAGES), (last, table.LAST)]:
            for pattern, state in matrix.states(pages, there, wanted):
                tasks.append(lambda browser, client, world, at=(pattern, state): matrix.look_at(browser, world, *at))
    return first, last


def do_all(tasks, browsers, client, world):
    """Runs all tasks, with one browser in each thread. Returns the errors in the order of the tasks, regardless of
    which task ends first."""
    found = [[] for _ in tasks]
    next_one = iter(range(len(tasks)))

    def work(browser):
        for index in next_one:
            found[index] = tasks[index](browser, client, world)

    with ThreadPoolExecutor(len(browsers)) as threads:
        list(threads.map(work, browsers))
    return sum(found, [])


def tell(name, browser, client, world):
    """Runs a story, and returns its errors."""
    try:
        browser.delay(0)
        STORIES[name].run(browser, client, world)
    except Exception:
        where = f"{browser.path()}: {browser.text('body')[:2000]}"
        browser.picture(f"failed-{name}")
        return [f"{name}: {traceback.format_exc()}{where}"]
    # Each story submits a form with an error.
    return [f"{name}: {one}" for one in browser.complaints(400)]


main()
