"""Tests the API reference and the pages that e-mails link to, in a browser: pages.py URL MAIL_FOLDER BROWSER_FOLDER.

TOLLKEEPER_TEST_SCREENSHOTS=FOLDER stores a screenshot of every state at two sizes, in light and in dark mode.
"""

import email
import email.policy
import json
import os
import pathlib
import shutil
import sys
import urllib.error
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import waits
from waits import until

URL, MAILS, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
PICTURES = os.environ.get("TOLLKEEPER_TEST_SCREENSHOTS")
EMAIL, PASSWORD, NEW_PASSWORD = "ada@example.com", "Correct-Horse-7-Staple", "Violet-Kettle-Orbit-9"

# Checks the contrast of every element with text to its nearest opaque background (WCAG 2.2, 1.4.3), and the labels of
# fields (4.1.2).
CHECK = """
const parse = (color) => color.match(/[\\d.]+/g).map(Number);
const light = (color) => {
  const [r, g, b] = parse(color).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    const [, , , alpha = 1] = parse(color);
    if (alpha === 1) return color;
  }
  return 'rgb(255, 255, 255)';
};
const bad = [];
for (const node of document.body.querySelectorAll('*')) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  if (own || node.tagName === 'INPUT') {
    const [a, b] = [light(getComputedStyle(node).color), light(behind(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) bad.push(`contrast ${contrast.toFixed(2)} of ${node.outerHTML}`);
  }
  if (node.tagName === 'INPUT' && node.type !== 'hidden' && !node.labels.length) bad.push(`no label: ${node.outerHTML}`);
  for (const name of ['aria-describedby', 'aria-labelledby']) {
    for (const id of (node.getAttribute(name) || '').split(' ').filter(Boolean)) {
      if (!document.getElementById(id)) bad.push(`${name} names ${id}, which isn't there`);
    }
  }
}
if (getComputedStyle(document.body).marginLeft !== '0px') bad.push('the style was refused');
if (document.documentElement.scrollWidth > innerWidth) bad.push(`wider than ${innerWidth}`);
return bad;
"""


def send(path, body, token=None):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["data"]


def status(path, body):
    try:
        send(path, body)
        return 200
    except urllib.error.HTTPError as error:
        return error.code


def call(path, body, expected=200):
    found = status(path, body)
    assert found == expected, (path, found)


def mailed_link(path):
    def attempt():
        for mail in sorted(MAILS.glob("*.eml"), reverse=True):
            # If a name isn't ASCII, the text is quoted-printable.
            text = email.message_from_bytes(mail.read_bytes(), policy=email.policy.default).get_body(("plain",))
            for line in text.get_content().splitlines():
                if line.startswith(f"{URL}{path}?token="):
                    return line.strip()
        return None

    return until(f"a mail with a link to {path}", attempt)


def start_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--user-data-dir={FOLDER}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(waits.SECONDS)
    return driver


def device(driver, width, height, scheme="light"):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def look(driver, name, heading):
    """Checks that the page has this heading, and that it is readable at every size, in light and in dark mode."""
    found = [one.text for one in driver.find_elements(By.TAG_NAME, "h1")]
    assert found == [heading], (name, found, driver.page_source)
    for scheme in ("light", "dark"):
        for width, height in ((320, 568), (390, 844), (1280, 800)):
            device(driver, width, height, scheme)
            wrong = driver.execute_script(CHECK)
            assert not wrong, (name, width, scheme, wrong)
            if PICTURES and width > 320:
                driver.save_screenshot(f"{PICTURES}/{name}-{width}-{scheme}.png")
    refused = [entry for entry in driver.get_log("browser") if "Content Security Policy" in entry["message"]]
    assert not refused, (name, refused)


def element(driver, css):
    return driver.find_element(By.CSS_SELECTOR, css)


def press(driver):
    """Presses the button, and waits for the next page."""
    waits.leave(driver, element(driver, "button").click)


def choose(driver, password, again):
    element(driver, "#password").send_keys(password)
    element(driver, "#password_confirmation").send_keys(again)
    press(driver)


def verify(driver):
    driver.get(f"{URL}/verify-email")
    look(driver, "verify-no-token", "Confirm your e-mail address")
    link = mailed_link("/verify-email")
    driver.get(link)
    driver.get(link)
    look(driver, "verify", "Confirm your e-mail address")
    element(driver, "#password").send_keys("Wrong-Kettle-1")
    press(driver)
    look(driver, "verify-wrong", "Confirm your e-mail address")
    element(driver, "#password").send_keys(PASSWORD)
    press(driver)
    look(driver, "verify-done", "Your address is confirmed")
    assert EMAIL in element(driver, "main").text
    assert "token" not in driver.current_url, driver.current_url
    driver.get(f"{URL}/verify-email")
    element(driver, "#token").send_keys(link.split("token=")[1])
    press(driver)
    look(driver, "verify-copied", "Confirm your e-mail address")
    element(driver, "#password").send_keys(PASSWORD)
    press(driver)
    look(driver, "verify-used", "This link no longer works")


def reset(driver):
    call("/v1/auth/forgot-password", {"email": EMAIL})
    driver.get(f"{URL}/reset-password")
    look(driver, "reset-no-token", "Choose a new password")
    link = mailed_link("/reset-password")
    driver.get(link)
    look(driver, "reset", "Choose a new password")
    press_without_filling(driver)
    choose(driver, "kettle", "kettle")
    look(driver, "reset-weak", "Choose a new password")
    alert = driver.switch_to.active_element
    assert alert.get_attribute("role") == "alert", alert.get_attribute("outerHTML")
    assert "The password needs a digit." in alert.text, alert.text
    assert element(driver, "#password").get_attribute("value") == ""
    # A link in the error summary moves the focus to the field.
    alert.find_element(By.TAG_NAME, "a").send_keys(Keys.ENTER)
    assert driver.switch_to.active_element.get_attribute("id") == "password"
    choose(driver, NEW_PASSWORD, PASSWORD)
    look(driver, "reset-differ", "Choose a new password")
    assert "don’t match" in element(driver, "[role=alert]").text
    choose(driver, NEW_PASSWORD, NEW_PASSWORD)
    look(driver, "reset-done", "Your password has changed")
    call("/v1/auth/login", {"email": EMAIL, "password": PASSWORD}, 401)
    call("/v1/auth/login", {"email": EMAIL, "password": NEW_PASSWORD})
    driver.get(link)
    choose(driver, NEW_PASSWORD, NEW_PASSWORD)
    look(driver, "reset-used", "This link no longer works")


def press_without_filling(driver):
    """Checks that the browser itself reports required fields that are empty."""
    element(driver, "button").click()
    assert driver.switch_to.active_element.get_attribute("id") == "password"
    assert driver.current_url.startswith(f"{URL}/reset-password?token=")


def invitation(driver):
    token = send("/v1/auth/login", {"email": EMAIL, "password": NEW_PASSWORD})["access_token"]
    name = "Acme & Söhne, makers of anvils since 1900"
    place = send("/v1/organizations", {"name": name}, token)["id"]
    body = {"email": "grace@example.com", "role": "admin", "message": "Come and join us!\nAda"}
    send(f"/v1/organizations/{place}/invitations", body, token)
    driver.get(f"{URL}/invitations/accept")
    look(driver, "invitation-no-token", "Accept the invitation")
    link = mailed_link("/invitations/accept")
    driver.get(link)
    look(driver, "invitation", "Accept the invitation")
    press(driver)
    look(driver, "invitation-no-account", "Create your account first")
    assert "grace@example.com" in element(driver, "main").text
    assert "token" not in driver.current_url, driver.current_url
    before = mailed_link("/verify-email")
    call("/v1/auth/register", {"email": "grace@example.com", "password": PASSWORD, "username": "grace"})
    driver.get(link)
    press(driver)
    look(driver, "invitation-unconfirmed", "Confirm your address first")
    until("another link", lambda: mailed_link("/verify-email") != before)
    driver.get(mailed_link("/verify-email"))
    element(driver, "#password").send_keys(PASSWORD)
    press(driver)
    look(driver, "invitation-verified", "Your address is confirmed")
    driver.get(link)
    press(driver)
    look(driver, "invitation-used", "This link no longer works")
    other = send("/v1/organizations", {"name": "Other"}, token)["id"]
    send(f"/v1/organizations/{other}/invitations", {"email": "grace@example.com"}, token)
    until("another invitation", lambda: mailed_link("/invitations/accept") != link)
    driver.get(mailed_link("/invitations/accept"))
    press(driver)
    look(driver, "invitation-done", "You’re a member")
    assert "now a member of Other." in element(driver, "main").text
    grace = send("/v1/auth/login", {"email": "grace@example.com", "password": PASSWORD})["access_token"]
    request = urllib.request.Request(f"{URL}/v1/organizations", headers={"Authorization": f"Bearer {grace}"})
    with urllib.request.urlopen(request) as answer:
        found = {one["name"]: one["role"] for one in json.load(answer)["data"]["organizations"]}
    assert found == {name: "admin", "Other": "member"}, found


def new_address(driver):
    token = send("/v1/auth/login", {"email": EMAIL, "password": NEW_PASSWORD})["access_token"]
    send("/v1/auth/change-email", {"new_email": "lovelace@example.com", "password": NEW_PASSWORD}, token)
    driver.get(f"{URL}/change-email")
    look(driver, "change-no-token", "Confirm your new e-mail address")
    link = mailed_link("/change-email")
    driver.get(link)
    look(driver, "change", "Confirm your new e-mail address")
    element(driver, "#password").send_keys(PASSWORD)
    press(driver)
    look(driver, "change-wrong", "Confirm your new e-mail address")
    assert "The password is incorrect." in element(driver, "[role=alert]").text
    element(driver, "#password").send_keys(NEW_PASSWORD)
    press(driver)
    look(driver, "change-done", "Your address has changed")
    assert "lovelace@example.com" in element(driver, "main").text
    assert "token" not in driver.current_url, driver.current_url
    call("/v1/auth/login", {"email": "lovelace@example.com", "password": NEW_PASSWORD})
    send("/v1/auth/change-email", {"new_email": "taken@example.com", "password": NEW_PASSWORD}, token)
    until("another link", lambda: mailed_link("/change-email") != link)
    call("/v1/auth/register", {"email": "taken@example.com", "password": PASSWORD, "username": "taken"})
    driver.get(mailed_link("/change-email"))
    element(driver, "#password").send_keys(NEW_PASSWORD)
    press(driver)
    look(driver, "change-taken", "This address belongs to another account")
    driver.get(link)
    element(driver, "#password").send_keys(NEW_PASSWORD)
    press(driver)
    look(driver, "change-used", "This link no longer works")


def errors(driver):
    driver.get(f"{URL}/reset-password/")
    look(driver, "error-404", "Page not found")
    # The rate limit may allow another request between our last attempt and the click.
    for _ in range(5):
        driver.get(f"{URL}/verify-email")
        element(driver, "#token").send_keys("x")
        assert 429 in (status("/v1/auth/verify-email", {"token": "x"}) for _ in range(100))
        press(driver)
        if element(driver, "h1").text == "Please wait a moment":
            break
    look(driver, "error-429", "Please wait a moment")


def reference(driver):
    driver.get(f"{URL}/docs")
    look(driver, "docs", "API reference")
    links = [(link.text, link.get_attribute("href")) for link in driver.find_elements(By.CSS_SELECTOR, "nav a")]
    for subject, address in links[1:]:
        driver.get(address)
        look(driver, f"docs-{address.rsplit('/', 1)[1]}", subject)
    driver.get(f"{URL}/docs/claude-code")
    look(driver, "docs-claude-code", "Claude Code")
    driver.get(f"{URL}/docs/api-keys#rotate_api_key")
    summary = element(driver, "#rotate_api_key summary")
    summary.click()
    code = element(driver, "#rotate_api_key details a")
    assert code.is_displayed(), "the error codes open"
    waits.leave(driver, code.click)
    assert element(driver, "h1").text == "API reference"
    anchor = driver.current_url.split("#")[1]
    assert anchor.startswith("error-") and element(driver, f"#{anchor}").is_displayed(), anchor


def main():
    until("the server", lambda: urllib.request.urlopen(f"{URL}/readyz"))
    call("/v1/auth/register", {"email": EMAIL, "password": PASSWORD, "username": "ada"})
    driver = start_browser()
    try:
        reference(driver)
        verify(driver)
        reset(driver)
        invitation(driver)
        new_address(driver)
        errors(driver)
    finally:
        driver.quit()


main()
