"""The journey of one user in Firefox. It runs only on request, because Debian has no geckodriver.

Requires `firefox-esr` and `geckodriver` in PATH.
"""

import shutil

from selenium import webdriver
from selenium.webdriver.firefox.service import Service

import journey
from browser import Browser


class Firefox(Browser):
    """A Firefox browser. It lacks Chromium's own commands, and reports neither requests nor console messages."""

    def __init__(self, url, folder):
        options = webdriver.FirefoxOptions()
        options.binary_location = shutil.which("firefox-esr") or shutil.which("firefox")
        options.add_argument("-headless")
        self.url, self.pictures = url, None
        self.driver = webdriver.Firefox(options=options, service=Service(shutil.which("geckodriver"), log_output=f"{folder}/firefox.log"))
        self.size(1280)

    def size(self, width, scheme="light"):
        self.driver.set_window_size(width, 900)

    def copied(self):
        return None

    def become(self, cookie):
        assert cookie is None, "it is always the same person"
        self.driver.delete_all_cookies()

    def leave(self, act):
        """Checks each page at two widths before it is left."""
        for width in [500, 1280]:
            self.size(width)
            wrong = self.look()
            assert not wrong, f"{self.path()} at {width}: {wrong}"
        super().leave(act)


def run(chromium, client, _):
    browser = Firefox(client.url, chromium.folder)
    try:
        journey.register(browser, "fox@example.com", "fox")
        browser.driver.get("about:blank")
        token = client.mailed_link("/verify-email", "fox@example.com").split("token=")[1]
        client.post("/v1/auth/verify-email", {"token": token})
        browser.driver.get(f"{client.url}/console/sign-in")
        journey.enter(browser, "fox@example.com")
        journey.settle(browser)
        secret = journey.create_key(browser)
        journey.call_with(browser, client, secret)
        journey.read_usage(browser, calls=journey.playground(browser), person="fox")
        journey.rotate(browser, client, secret)
        journey.sign_out(browser)
    except Exception:
        browser.driver.save_screenshot(f"{chromium.folder}/failed-firefox.png")
        raise
    finally:
        browser.driver.quit()
