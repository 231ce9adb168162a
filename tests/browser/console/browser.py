"""A Chromium browser: the pages that it shows, its requests, and its error messages."""

import json
import os
import pathlib
import shutil
import time
from base64 import b64decode

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

import waits
from looks import AXE, LOAD, LOOK, RULES

WIDTHS = {320: 640, 768: 1024, 1280: 800}

# True once the answer in the playground is complete, which is when the price is shown.
ANSWERED = "!['', '–'].includes(document.querySelector('[data-shown=price]').textContent.trim())"

# Fills in the form with this button, and submits it without the browser's validation.
SEND = """
const [name, values] = arguments;
const buttons = [...document.querySelectorAll('main button[type=submit]')];
const button = buttons.find((one) => one.textContent.trim().startsWith(name));
if (!button) return `no button ${name}: ${buttons.map((one) => one.textContent.trim())}`;
const form = button.form;
form.noValidate = true;
for (const [field, value] of Object.entries(values)) {
  const all = [...form.querySelectorAll(`[name="${field}"]:not([type=hidden])`)];
  if (!all.length) return `no field ${field}`;
  for (const one of all) {
    if (one.type === 'checkbox' || one.type === 'radio') {
      one.checked = [value].flat().includes(one.value);
    } else if (one.tagName === 'SELECT' && ![...one.options].some((option) => option.value === value)) {
      return `no choice ${value} of ${field}`;
    } else {
      one.value = value;
    }
  }
}
window.isOld = true;
form.requestSubmit(button);
"""


class Browser:
    """A Chromium browser."""

    def __init__(self, url, folder, modules):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in (
            "--headless", "--hide-scrollbars", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--user-data-dir={folder}",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.add_experimental_option("perfLoggingPrefs", {"enableNetwork": True, "enablePage": False})
        self.url, self.folder, self.modules = url, folder, modules
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_script_timeout(waits.SECONDS)
        self.axe = (pathlib.Path(modules) / "axe-core/axe.min.js").read_text()
        self.pictures = os.environ.get("TOLLKEEPER_TEST_SCREENSHOTS")
        self.seconds = {}
        # Without a cache, each page is loaded as if it was opened for the first time.
        self.cdp("Network.setCacheDisabled", cacheDisabled=True)
        self.size(1280)
        # The page of a new tab sends many requests, which are discarded.
        self.open("/console/sign-in")
        self.requests()

    def cdp(self, command, **parameters):
        return self.driver.execute_cdp_cmd(command, parameters)

    def size(self, width, scheme="light"):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=WIDTHS.get(width, 800), deviceScaleFactor=1, mobile=False)
        self.choose(scheme)

    def choose(self, scheme):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def delay(self, milliseconds):
        """Delays all further responses by this many milliseconds."""
        self.cdp("Network.emulateNetworkConditions", offline=False, latency=milliseconds, downloadThroughput=-1, uploadThroughput=-1)

    def allow_script(self, is_allowed):
        self.cdp("Emulation.setScriptExecutionDisabled", value=not is_allowed)

    def open(self, path):
        self.driver.get(path if path.startswith("http") else self.url + path)

    def path(self):
        return self.driver.current_url.removeprefix(self.url)

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css):
        found = self.all(css)
        assert len(found) == 1, f"{len(found)} elements are {css} on {self.path()}: {self.text()}"
        return found[0]

    def text(self, css="main"):
        return self.driver.find_element(By.CSS_SELECTOR, css).text

    def heading(self):
        return self.text("h1")

    def expect(self, *words):
        """Checks that the page contains these words."""
        text = " ".join(self.text().split())
        for word in words:
            assert word in text, f"{word!r} isn't on {self.path()}: {text}"

    def click(self, words, css="main a, main button"):
        """Clicks the only button or link with these words, and waits for the page that it opens."""
        found = [element for element in self.all(css) if " ".join(element.text.split()) == words]
        assert len(found) == 1, f"{len(found)} elements have the words {words!r} on {self.path()}: {self.text()}"
        self.leave(found[0].click)

    def leave(self, act):
        """Performs an action that opens another page, and waits for that page."""
        waits.leave(self.driver, act)

    def arrive(self, there="!window.isOld"):
        """Waits for the next page, or for a page for which this expression is true."""
        waits.arrive(self.driver, there)

    def wait(self, what, condition):
        """Waits until a change of the page makes this expression true."""
        waits.wait(self.driver, what, condition)

    def type(self, **fields):
        """Types into fields, as a user does. Two underscores in a name stand for a dot."""
        for name, value in fields.items():
            element = self.one(f'main [name="{name.replace("__", ".")}"]:not([type=hidden])')
            if element.tag_name == "select":
                element.find_element(By.CSS_SELECTOR, f'option[value="{value}"]').click()
            else:
                element.clear()
                element.send_keys(value)

    def send(self, button, values):
        """Submits the form of a button, given by its words, with these values, without the browser's validation."""
        wrong = self.driver.execute_script(SEND, button, values)
        assert not wrong, f"{wrong}, on {self.path()}"
        self.arrive()

    def begin_sign_in(self, address, password):
        """Submits the sign-in form with an address and a password."""
        self.driver.delete_all_cookies()
        self.open("/console/sign-in")
        self.type(email=address, password=password)
        self.click("Sign in", "main button")

    def sign_in(self, address, password):
        """Signs in a user without a second factor, and returns the cookie."""
        self.begin_sign_in(address, password)
        return self.cookie()

    def second_step(self, code):
        """Enters the code in the second step of a sign-in, and returns the cookie."""
        self.type(one_time_code=code)
        self.click("Sign in", "main button")
        return self.cookie()

    def cookie(self):
        found = [cookie for cookie in self.driver.get_cookies() if cookie["name"] == "tollkeeper"]
        return found[0]["value"] if found else None

    def become(self, cookie):
        """Continues as the user with this cookie, or signed out if it is `None`."""
        self.cdp("Network.clearBrowserCookies")
        if cookie:
            self.cdp("Network.setCookie", name="tollkeeper", value=cookie, url=self.url, httpOnly=True, sameSite="Lax")

    def copied(self):
        """Returns the text in the clipboard."""
        self.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        return self.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")

    def requests(self):
        """Returns the URLs requested since the last call, except `data:` URLs."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent" and not message["params"]["request"]["url"].startswith("data:"):
                found.append(message["params"]["request"]["url"])
        return found

    def complaints(self, status=200):
        """Returns the messages in the browser's console since the last call, such as errors and violations of the
        policy."""
        entries = [entry["message"] for entry in self.driver.get_log("browser")]
        # The browser logs these messages for the page itself, for malformed dates in a URL, and for a sign-out. They
        # aren't errors.
        own = ["does not conform to the required format", "Cleared data types"] + ([f"status of {status}"] if status >= 400 else [])
        return [entry for entry in entries if not any(words in entry for words in own)]

    def load(self):
        """Returns measurements of how the page loaded."""
        return self.driver.execute_async_script(LOAD)

    def look(self):
        return self.driver.execute_script(LOOK + "return bad;")

    def run_axe(self, rules=RULES):
        if not self.driver.execute_script("return typeof axe === 'object'"):
            self.driver.execute_script(self.axe)
        return self.driver.execute_async_script(AXE, rules)

    def picture(self, name):
        """Stores a screenshot of the whole page, if requested."""
        if self.pictures:
            picture = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True, optimizeForSpeed=True)
            (pathlib.Path(self.pictures) / f"{name}.png").write_bytes(b64decode(picture["data"]))

    def timed(self, what, act, *arguments):
        """Calls a function, and adds its duration to the total for `what`."""
        start = time.monotonic()
        try:
            return act(*arguments)
        finally:
            self.seconds[what] = self.seconds.get(what, 0) + time.monotonic() - start
