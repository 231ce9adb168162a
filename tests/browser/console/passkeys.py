"""Tests passkeys with the browser's virtual authenticator. A passkey is added, used for signing in from the address
field and with the button, used as a second factor and for reauthentication, and removed.
"""

from selenium.webdriver.common.virtual_authenticator import Protocol, Transport, VirtualAuthenticatorOptions

from world import PASSWORD

ADDRESS = "pia@example.com"
STATE = "/console/account/second-factor"
REFUSED = "document.querySelector('[data-failure]').checkVisibility()"


def run(browser, client, world):
    world.register("pia")
    # Browsers don't support passkeys at IP addresses.
    browser.become(None)
    browser.size(1280)
    browser.sign_in(ADDRESS, PASSWORD)
    browser.open(STATE)
    browser.expect("Passkeys don’t work at this address. Open http://localhost:")
    wrong = browser.complaints()
    browser.become(None)
    options = VirtualAuthenticatorOptions(
        protocol=Protocol.CTAP2, transport=Transport.INTERNAL, has_resident_key=True, has_user_verification=True,
        is_user_consenting=True, is_user_verified=True,
    )
    browser.driver.add_virtual_authenticator(options)
    browser.url = client.url.replace("127.0.0.1", "localhost")
    try:
        work(browser)
        wrong += browser.complaints(401)
    finally:
        browser.url = client.url
        browser.driver.remove_virtual_authenticator()
    assert not wrong, wrong


def work(browser):
    browser.sign_in(ADDRESS, PASSWORD)
    add(browser)
    sign_in_by_the_field(browser)
    # On pages opened from now on, the address field offers no passkeys.
    source = "delete PublicKeyCredential.isConditionalMediationAvailable"
    script = browser.cdp("Page.addScriptToEvaluateOnNewDocument", source=source)["identifier"]
    try:
        sign_in_by_the_button(browser)
        finish_by_passkey(browser)
        prove(browser)
        refuse(browser)
        remove(browser)
    finally:
        browser.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def look(browser):
    """Checks a page with a button for passkeys, because the matrix checks none."""
    assert not browser.look(), browser.look()
    assert not browser.run_axe(), browser.run_axe()


def add(browser):
    browser.open(STATE)
    browser.expect("A passkey lets you sign in without a password")
    assert not browser.one("[data-elsewhere]").is_displayed()
    browser.click("Add a passkey")
    look(browser)
    browser.type(name="Laptop")
    browser.click("Add the passkey")
    browser.expect("Your passkey is added", "Save these recovery codes now.")
    browser.one("#kept").click()
    browser.click("Continue")
    browser.expect("Laptop", "You have 10 recovery codes left")
    assert len(browser.driver.get_credentials()) == 1
    # The authenticator refuses to create a second passkey for the account.
    browser.click("Add a passkey")
    browser.one("main button.main").click()
    browser.wait("the browser's refusal", REFUSED)


def sign_out(browser):
    browser.driver.delete_all_cookies()


def sign_in_by_the_field(browser):
    """Signs in from the address field, which offers the passkey. The virtual authenticator uses it immediately."""
    sign_out(browser)
    browser.open("/console/sign-in?next=/console/account/second-factor")
    browser.arrive(f"location.pathname === '{STATE}'")
    browser.expect("Laptop")


def sign_in_by_the_button(browser):
    """Signs in with the button, which replaces the offer of the field."""
    sign_out(browser)
    browser.open("/console/sign-in?next=/console/account/second-factor")
    look(browser)
    browser.click("Sign in with a passkey")
    assert browser.path() == STATE, browser.path()
    browser.expect("Laptop")


def finish_by_passkey(browser):
    sign_out(browser)
    browser.begin_sign_in(ADDRESS, PASSWORD)
    browser.expect("Use a passkey, or enter one of your recovery codes.")
    look(browser)
    browser.click("Use a passkey")
    assert browser.cookie() and not browser.driver.get_cookie("tollkeeper-second-factor")


def prove(browser):
    browser.open("/console/reauthenticate?next=/console/account/second-factor")
    look(browser)
    before = browser.cookie()
    browser.click("Use a passkey")
    assert browser.path() == STATE and browser.cookie() != before, browser.path()


def refuse(browser):
    """Checks that a user whom the authenticator doesn't verify isn't signed in."""
    sign_out(browser)
    browser.driver.set_user_verified(False)
    browser.open("/console/sign-in")
    browser.one("[data-passkey]").click()
    browser.wait("the browser's refusal", REFUSED)
    assert browser.path() == "/console/sign-in", browser.path()
    browser.driver.set_user_verified(True)
    browser.click("Sign in with a passkey")
    assert browser.cookie()


def remove(browser):
    browser.open(STATE)
    browser.click("Rename Laptop")
    browser.type(name="Old laptop")
    browser.click("Save")
    browser.expect("The passkey is renamed.", "Old laptop")
    browser.click("Remove Old laptop")
    browser.expect("This is your last passkey.")
    browser.click("Remove the passkey")
    browser.expect("The passkey is removed.")
    sign_out(browser)
    browser.open("/console/sign-in")
    browser.click("Sign in with a passkey")
    browser.expect("This passkey is unknown here")
    browser.sign_in(ADDRESS, PASSWORD)
    assert browser.cookie(), "the password alone is enough again"
