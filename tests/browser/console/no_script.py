"""Uses the console without a script: creates and uses a key, reads its usage, calls a model, and signs out."""

from datetime import datetime, timedelta, timezone

from waits import until
from world import PASSWORD


def run(browser, client, world):
    world.register("noscript")
    browser.size(1280)
    browser.become(None)
    browser.allow_script(False)
    try:
        work(browser, client)
    finally:
        browser.allow_script(True)


def work(browser, client):
    browser.sign_in("noscript@example.com", PASSWORD)
    browser.click("Create an organization")
    browser.type(name="Plain")
    browser.click("Create the organization")
    browser.click("Create a project")
    browser.type(name="Pages")
    browser.click("Create the project")
    secret = make_key(browser)
    client.chat(secret)
    call_model(browser)
    read_usage(browser)
    rotate(browser, client, secret)
    browser.one(".person summary").click()
    browser.click("Sign out", ".person button")
    browser.expect("You’re signed out.")


def make_key(browser):
    browser.click("Create a key")
    browser.type(name="Shop", restrictions__rate_limit="many")
    browser.click("Create the key")
    browser.expect("There’s a problem", "Requests per minute must be a whole number.")
    assert browser.one("#name").get_attribute("value") == "Shop"
    browser.type(restrictions__rate_limit="60")
    browser.click("Create the key")
    browser.expect("Shop is ready")
    assert not any(button.is_displayed() for button in browser.all("[data-copy]")), "a button that does nothing"
    secret = browser.text("#secret")
    browser.click("Go to the key")
    browser.expect("active", "60", "UTC")
    return secret


def call_model(browser):
    browser.click("Playground", ".side a")
    browser.type(message="Who are you?")
    browser.click("Send", "main button")
    assert browser.text("[data-shown=text]"), browser.text()
    assert browser.text("[data-shown=price]").endswith("USD"), browser.text()


def read_usage(browser):
    def shown():
        browser.click("Usage", ".side ul:first-of-type a")
        return browser.all("svg") and browser.text(".figures div:nth-of-type(2) dd") == "2"

    # The server counts a call after it has answered it.
    until("the usage of the calls", shown)
    browser.type(by="key", show="tokens")
    browser.click("Apply")
    browser.expect("Shop", "noscript", "Tokens per day by")
    browser.type(range="custom")
    browser.click("Apply")
    day = datetime.now(timezone.utc) - timedelta(days=40)
    # A date is typed in the order of the browser's locale.
    browser.type(start_date=f"{day:%m%d%Y}")
    browser.click("Apply")
    assert f"start_date={day:%Y-%m-%d}" in browser.path(), browser.path()
    browser.expect(f"{day.day} {day:%b %Y} to ")


def rotate(browser, client, old):
    browser.click("API keys", ".side a")
    browser.click("Shop", "main table a")
    browser.click("Rotate")
    browser.click("Rotate the key")
    new = browser.text("#secret")
    browser.click("Go to the key")
    browser.expect("This key has two secrets", "UTC")
    browser.click("Revoke old secret")
    browser.expect("The previous secret is revoked")
    client.chat(new)
    assert new != old
