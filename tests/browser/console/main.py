"""Drives a browser through the console: python3 main.py URL SERVICE_URL DATA_FOLDER BROWSER_FOLDER NODE_MODULES [PART …].

The routes of the console come by the standard input, a method and a path in each line. Without a PART everything runs; one of
`matrix` may name pages, as in `matrix:/api-keys`. TOLLKEEPER is the program, which adds a credit.
TOLLKEEPER_TEST_SCREENSHOTS=FOLDER keeps a picture of every state, at each width, light and dark.
"""

import sys
import time
import traceback

import journey
import keyboard
import matrix
import no_script
from browser import Browser
from client import Client, until
from world import World


def main():
    url, service, data, folder, modules, *parts = sys.argv[1:]
    routes = [tuple(line.split()) for line in sys.stdin]
    client = Client(url, service, data)
    until("the server", lambda: client.call("GET", "/readyz")[0] == 200)
    browser = Browser(url, folder, modules)
    wrong = []
    try:
        for part in parts or ["journey", "keyboard", "no_script", "matrix"]:
            start = time.monotonic()
            wrong += run(part, browser, client, routes)
            print(f"{part}: {time.monotonic() - start:.1f} s")
    finally:
        browser.driver.quit()
    print(" ".join(f"{what}: {seconds:.1f} s" for what, seconds in browser.seconds.items()))
    if wrong:
        raise SystemExit("\n".join([f"{len(wrong)} mistakes:", *wrong]))


def run(part, browser, client, routes):
    """Runs a part, and returns what was wrong."""
    name, _, wanted = part.partition(":")
    if name == "matrix":
        world = World(client)
        browser.timed("world", world.fill)
        world.sign_in(browser)
        return matrix.run(browser, world, routes, wanted)
    stories = {"journey": journey, "keyboard": keyboard, "no_script": no_script}
    try:
        stories[name].run(browser, client)
    except Exception:
        where = f"{browser.path()}: {browser.text('body')[:2000]}"
        browser.picture(f"failed-{name}")
        return [f"{name}: {traceback.format_exc()}{where}"]
    return [f"{name}: {one}" for one in browser.complaints()]


main()
