"""Creates the pictures of docs/console.md. They show an organization as customers have it."""

import pathlib
from base64 import b64decode

from browser import ANSWERED

ORGANIZATION = "/console/organizations/{organization_id}"
PROJECT = ORGANIZATION + "/projects/{project_id}"
KEYS = PROJECT + "/api-keys"


def answered(browser):
    browser.type(message="What can you do for me?")
    browser.one("main button.main").click()
    browser.wait("the price of the call", ANSWERED)
    browser.driver.execute_script("document.activeElement.blur(); scrollTo(0, 0)")


def created(browser):
    browser.type(name="staging-2")
    browser.click("Create the key", "main button")


# The pictures: name, page, width, height, color scheme, and the steps after the page was opened.
PICTURES = [
    ("overview", ORGANIZATION, 1280, 1000, "light", None),
    ("usage", ORGANIZATION + "/usage?range=30_days", 1280, 1000, "dark", None),
    ("keys", KEYS, 1280, 560, "light", None),
    ("secret", KEYS + "/new", 1280, 760, "dark", created),
    ("key", KEYS + "/{key_id}", 1280, 1000, "light", None),
    ("playground", PROJECT + "/playground", 1280, 1000, "light", answered),
    ("members", ORGANIZATION + "/members", 1280, 560, "dark", None),
    ("billing", ORGANIZATION + "/billing", 1280, 900, "light", None),
    ("invoices", ORGANIZATION + "/billing/invoices", 1280, 480, "light", None),
    ("audit-log", ORGANIZATION + "/audit-log", 1280, 760, "dark", None),
    ("overview-narrow", ORGANIZATION, 320, 720, "light", None),
    ("key-narrow", KEYS + "/{key_id}", 320, 720, "dark", None),
]


def run(browser, client, world):
    assert browser.pictures, "TOLLKEEPER_TEST_SCREENSHOTS names no folder"
    browser.become(world.sign_in()["olivia"])
    for name, pattern, width, height, scheme, act in PICTURES:
        browser.size(width, scheme)
        browser.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        browser.open(world.path(pattern, "rotated"))
        if act:
            act(browser)
        picture = browser.cdp("Page.captureScreenshot", format="png")
        (pathlib.Path(browser.pictures) / f"{name}.png").write_bytes(b64decode(picture["data"]))
        browser.driver.execute_script("document.querySelector('[data-kept]')?.click()")
