"""Waits for what happens on pages: the next one, or a change of this one. The page tells; nobody looks again after a while."""

import time

from selenium.common.exceptions import JavascriptException, TimeoutException
from selenium.webdriver.common.by import By

# A wait of this length is a failure. Only failures take so long, so that a busy machine has enough time;
# drivers are given up after 120 seconds.
SECONDS = 90

# A page that has to be left never answers: its end ends the script.
NEXT = """
const done = arguments[0];
if (%s) document.readyState === 'complete' ? done() : addEventListener('load', () => done());
"""

CHANGE = """
const done = arguments[0];
const look = () => {
  if (!(%s)) return;
  changes.disconnect();
  done();
};
const changes = new MutationObserver(look);
changes.observe(document, {attributes: true, characterData: true, childList: true, subtree: true});
look();
"""


def leave(driver, act):
    """Does what leads to another page, and waits for that one."""
    driver.execute_script("window.isOld = true")
    act()
    arrive(driver)


def arrive(driver, there="!window.isOld"):
    """Waits until a page is loaded of which this expression is true."""
    watch(driver, f"a page with {there}", NEXT % there)


def wait(driver, what, condition):
    """Waits until a change, of this page or to another, makes this expression true."""
    watch(driver, what, CHANGE % condition)


def watch(driver, what, script):
    driver.set_script_timeout(SECONDS)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            return driver.execute_async_script(script)
        except (JavascriptException, TimeoutException):
            # The page was left, which drivers report like a script that fails or takes too long: the next one is asked.
            continue
    text = driver.find_element(By.TAG_NAME, "body").text
    raise AssertionError(f"{what} did not come in {SECONDS} seconds, on {driver.current_url}: {text[:2000]}")


def until(what, attempt):
    """Tries until the attempt returns something: only for what other processes do, of which no page and no handle tells."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            if found := attempt():
                return found
        except OSError:
            pass  # It isn't there yet.
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come in {SECONDS} seconds")
