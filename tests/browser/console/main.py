"""Drives a browser through the console of a server that it starts: python3 main.py PROGRAM FOLDER NODE_MODULES [PART …].

The routes of the console come by the standard input, a method and a path in each line; without them the table of states isn't
held against them. Without a PART everything runs; `matrix` may name pages, as in `matrix:/api-keys`, `pictures` makes those of
docs/console.md, and `firefox` goes one way in Firefox. TOLLKEEPER_TEST_SCREENSHOTS=FOLDER keeps a picture of every state, at each width, light and dark.
"""

import signal
import sys
import time
import traceback

import firefox
import journey
import keyboard
import matrix
import no_script
import passkeys
import pictures
import slow
from browser import Browser
from client import Client
from provider import Provider
from server import Server
from world import World

STORIES = {"journey": journey, "keyboard": keyboard, "no_script": no_script, "passkeys": passkeys, "slow": slow,
           "pictures": pictures, "firefox": firefox}


def main():
    # Whoever ends this ends the server and the browser, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    program, folder, modules, *parts = sys.argv[1:]
    routes = [] if sys.stdin.isatty() else [tuple(line.split()) for line in sys.stdin]
    server = Server(program, folder)
    client = Client(server.url, server.service, server.data)
    world = World(client, server, busyness=8 if "pictures" in parts else 1)
    wrong = []
    try:
        timed("world", world.fill)
        browser = Browser(server.url, server.folder / "browser", modules)
        try:
            for part in parts or ["journey", "keyboard", "no_script", "passkeys", "slow", "matrix"]:
                wrong += timed(part, run, part, browser, client, world, routes)
        finally:
            browser.driver.quit()
    finally:
        if world.provider:
            world.provider.stop()
        server.stop()
    print(" ".join(f"{what}: {seconds:.1f} s" for what, seconds in browser.seconds.items()))
    if wrong:
        raise SystemExit("\n".join([f"{len(wrong)} mistakes:", *wrong]))


def timed(what, act, *arguments):
    start = time.monotonic()
    found = act(*arguments)
    print(f"{what}: {time.monotonic() - start:.1f} s", flush=True)
    return found


def run(part, browser, client, world, routes):
    """Runs a part, and returns what was wrong."""
    name, _, wanted = part.partition(":")
    if name == "matrix":
        other = Browser(client.url, f"{browser.folder}-2", browser.modules)
        try:
            if not world.provider:
                world.connect(Provider(world.server, browser.modules))
            return matrix.run([browser, other], world, routes, wanted)
        finally:
            other.driver.quit()
            for what, seconds in other.seconds.items():
                browser.seconds[what] = browser.seconds.get(what, 0) + seconds
    try:
        STORIES[name].run(browser, client, world)
    except Exception:
        where = f"{browser.path()}: {browser.text('body')[:2000]}"
        browser.picture(f"failed-{name}")
        return [f"{name}: {traceback.format_exc()}{where}"]
    # Each has sent a form with a mistake.
    return [f"{name}: {one}" for one in browser.complaints(400)]


main()
