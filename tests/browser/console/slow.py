"""Tests slow responses. A form is submitted only once, regardless of how often its button is pressed. It can be
submitted again after the browser has stopped loading."""

from world import PASSWORD

# Presses the button of a form three times. Returns its state for screen readers, and its cursor.
PRESS = """
window.isOld = true;
const button = document.querySelector('main form[method=post] button[type=submit]');
for (let times = 0; times < 3; times += 1) button.click();
return [button.getAttribute('aria-disabled'), getComputedStyle(button).cursor];
"""

# Presses the button, stops loading, and waits until the form can be submitted again.
GIVE_UP = """
const done = arguments[0];
const button = document.querySelector('main form[method=post] button[type=submit]');
button.click();
window.stop();
const pressed = button.getAttribute('aria-disabled');
new MutationObserver(() => {
  if (!button.hasAttribute('aria-disabled')) done([pressed, location.pathname]);
}).observe(button, {attributes: true});
"""

# Shortens the page's timers, so that the test doesn't wait for ten seconds.
HURRY = "const wait = window.setTimeout; window.setTimeout = (act, ms, ...rest) => wait(act, Math.min(ms, 400), ...rest);"

NEW = "/console/organizations/new"


# The rate of a slow connection in bytes per second. A page arrives in pieces at this rate.
SLOW = 8_000

INVOICE = "/console/organizations/{organization_id}/billing/invoices/{invoice_id}"


def run(browser, client, world):
    paint_at_once(browser, world)
    world.register("slow")
    browser.size(1280)
    browser.sign_in("slow@example.com", PASSWORD)
    hurry = browser.cdp("Page.addScriptToEvaluateOnNewDocument", source=HURRY)["identifier"]
    try:
        press_often(browser)
        give_up(browser)
    finally:
        browser.delay(0)
        browser.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=hurry)


def paint_at_once(browser, world):
    """Checks that a page that arrives in pieces is shown only when it is complete. Otherwise, a row of a table could
    widen the columns of the rows before it."""
    browser.become(world.sign_in()["ada"])
    browser.size(1280)
    browser.cdp("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=SLOW, uploadThroughput=-1)
    browser.open(world.path(INVOICE, "full"))
    shifts = browser.load()["shifts"]
    browser.delay(0)
    assert not shifts, shifts
    # A slow machine has received all bytes, and shows a part of the page before it has parsed the rest.
    browser.cdp("Emulation.setCPUThrottlingRate", rate=8)
    for width in [768, 1280] * 5:
        browser.size(width)
        browser.open(world.path(INVOICE, "full"))
        shifts = browser.load()["shifts"]
        assert not shifts, shifts
    browser.cdp("Emulation.setCPUThrottlingRate", rate=1)


def press_often(browser):
    browser.open(NEW)
    browser.type(name="Slow", description="Once.")
    browser.requests()
    browser.delay(300)
    assert browser.driver.execute_script(PRESS) == ["true", "progress"], "the button doesn't say that it was pressed"
    browser.arrive()
    sent = [one for one in browser.requests() if one.endswith(NEW)]
    assert len(sent) == 1, sent
    browser.expect("The organization is ready.")


def give_up(browser):
    browser.delay(0)
    browser.open(NEW)
    browser.type(name="Later", description="Kept.")
    browser.delay(60000)
    assert browser.driver.execute_async_script(GIVE_UP) == ["true", NEW], browser.path()
    browser.delay(0)
    assert browser.one("#description").get_attribute("value") == "Kept.", "what was typed is gone"
    browser.click("Create the organization", "main button")
    browser.expect("The organization is ready.")
