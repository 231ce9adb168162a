"""Waits for changes of a page or for the next page. The browser reports them, so that no polling is needed."""

import time

from selenium.common.exceptions import JavascriptException, TimeoutException
from selenium.webdriver.common.by import By

# The timeout in seconds. It is generous for slow machines, because only failures reach it. Drivers time out after 120
# seconds.
SECONDS = 90

# On a page that is left, this script never returns. It ends with the page.
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
    """Performs an action that opens another page, and waits for that page."""
    driver.execute_script("window.isOld = true")
    act()
    arrive(driver)


def arrive(driver, there="!window.isOld"):
    """Waits until a page for which this expression is true is loaded."""
    watch(driver, f"a page with {there}", NEXT % there)


def wait(driver, what, condition):
    """Waits until a change of this page, or the next page, makes this expression true."""
    watch(driver, what, CHANGE % condition)


def watch(driver, what, script):
    driver.set_script_timeout(SECONDS)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            return driver.execute_async_script(script)
        except (JavascriptException, TimeoutException):
            # When a page is left, drivers report a failed script or a timeout. The script runs again on the next page.
            continue
    text = driver.find_element(By.TAG_NAME, "body").text
    raise AssertionError(f"{what} did not come in {SECONDS} seconds, on {driver.current_url}: {text[:2000]}")


def until(what, attempt):
    """Polls until the attempt returns a value. Only for results of other processes, for which a page can't wait."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            if found := attempt():
                return found
        except OSError:
            pass  # The other process isn't ready yet.
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come in {SECONDS} seconds")
