"""Creates an API key with the keyboard alone, on a wide screen and at a zoom of 400%. Checks that the focus is always
visible and that nothing covers it."""

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from world import PASSWORD

# A wide screen, and a screen of 1280 x 1024 pixels at a zoom of 400%.
SIZES = [(1280, 800), (320, 256)]

FOCUS = """
const node = document.activeElement;
const name = node.labels?.[0]?.textContent ?? node.getAttribute('aria-label') ?? node.textContent;
const rect = [...node.getClientRects()].find((one) => one.bottom > 0 && one.top < innerHeight);
const style = getComputedStyle(node);
const bad = [];
const words = name.trim().split(/\\s+/).join(' ');
if (!node.matches(':focus-visible') || style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) bad.push('no outline');
if (!rect) {
  bad.push('out of view');
} else {
  const middle = (start, end, most) => (Math.max(start, 0) + Math.min(end, most)) / 2;
  const hit = document.elementFromPoint(middle(rect.left, rect.right, innerWidth), middle(rect.top, rect.bottom, innerHeight));
  if (!node.contains(hit)) bad.push(`hidden by ${hit?.outerHTML.slice(0, 120)}`);
}
return [words, node.tagName, bad];
"""


def run(browser, client, world):
    world.register("kay")
    for width, height in SIZES:
        browser.become(None)
        browser.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        Keyboard(browser).make_key(f"Keys of {width}")


class Keyboard:
    """A user without a mouse."""

    def __init__(self, browser):
        self.browser = browser

    def press(self, *keys):
        for key in keys:
            ActionChains(self.browser.driver).send_keys(key).perform()

    def focus(self):
        """Returns the name and the tag of the focused element. Asserts that the focus is visible."""
        name, tag, bad = self.browser.driver.execute_script(FOCUS)
        assert not bad, f"{tag} {name!r} on {self.browser.path()}: {bad}"
        return name, tag

    def tab_to(self, words, tag=None):
        """Presses Tab until the element with this name has the focus."""
        seen = []
        for _ in range(80):
            self.press(Keys.TAB)
            found = self.focus()
            seen.append(found)
            if found[0] == words and tag in (None, found[1]):
                return
        raise AssertionError(f"no Tab leads to {words!r} on {self.browser.path()}: {seen}")

    def type(self, label, text):
        self.tab_to(label)
        self.press(text)

    def enter(self):
        """Presses Enter, and checks the page that is opened."""
        self.browser.leave(lambda: self.press(Keys.ENTER))
        wrong = self.browser.look()
        assert not wrong, f"{self.browser.path()}: {wrong}"

    def go(self, words, tag=None):
        self.tab_to(words, tag)
        self.enter()

    def make_key(self, name):
        browser = self.browser
        browser.open("/console/sign-in")
        self.type("E-mail address", "kay@example.com")
        self.type("Password", PASSWORD)
        self.enter()
        browser.open("/console/organizations/new")
        # The first Tab focuses the link that skips the header.
        self.press(Keys.TAB)
        assert self.focus()[0] == "Skip to content"
        self.press(Keys.ENTER)
        self.type("Name", name)
        self.go("Create the organization", "BUTTON")
        self.go("Create a project")
        self.type("Name", "Anvils")
        self.go("Create the project", "BUTTON")
        self.go("Create a key")
        # After an error, the error summary has the focus. A link in it moves the focus to the field.
        self.type("Name", "Shop")
        self.type("Requests per minute", "many")
        self.go("Create the key", "BUTTON")
        assert browser.driver.switch_to.active_element.get_attribute("role") == "alert", self.focus()
        self.tab_to("Requests per minute must be a whole number.")
        self.press(Keys.ENTER)
        assert self.focus()[0] == "Requests per minute"
        self.press(Keys.END, *[Keys.BACKSPACE] * 4, "600")
        self.tab_to("svc-1")
        self.press(Keys.SPACE)
        self.go("Create the key", "BUTTON")
        browser.expect("Shop is ready")
        self.tab_to("I’ve saved this key")
        self.press(Keys.SPACE)
        self.go("Go to the key")
        browser.expect("600", "svc-1", "active")
        browser.open(browser.path())
        self.tab_to("kay", "SUMMARY")
        self.press(Keys.ENTER)
        self.tab_to("Models and prices")
        self.press(Keys.ESCAPE)
        assert self.focus()[0] == "kay"
        self.press(Keys.ENTER)
        self.go("Sign out", "BUTTON")
        browser.expect("You’re signed out.")
