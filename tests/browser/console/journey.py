"""Two users use the console, from the registration to the last sign-out."""

import csv
import io
import json
import re
import shutil
import subprocess
from datetime import datetime, timedelta

from browser import ANSWERED
from waits import until
from world import PASSWORD

ADDRESS, OTHER = "lin@example.com", "kim@example.com"


def run(browser, client, world):
    browser.become(None)
    browser.size(1280)
    join(browser, client, ADDRESS, "lin")
    settle(browser)
    secret = create_key(browser)
    call_with(browser, client, secret)
    read_usage(browser, calls=playground(browser), person="lin")
    secret = rotate(browser, client, secret)
    mine = browser.cookie()
    theirs = invite(browser, client)
    promote_and_remove(browser, client, mine, theirs)
    read_invoice(browser, client, world, mine)
    read_audit_log(browser)
    read_times(browser)
    end_sessions(browser, client)
    sign_out(browser)
    client.chat(secret)


def register(browser, address, username):
    browser.open("/console/register")
    browser.type(email=address, username=username, password=PASSWORD)
    browser.click("Create the account")
    browser.expect("We sent you an e-mail with a link to confirm your address.")


def verify(browser, client, address):
    browser.open(client.mailed_link("/verify-email", address))
    browser.one("#password").send_keys(PASSWORD)
    browser.click("Confirm my address")
    browser.expect("Your address is confirmed")
    browser.click("Sign in")


def enter(browser, address):
    browser.type(email=address, password=PASSWORD)
    browser.click("Sign in", "main button")


def join(browser, client, address, username):
    register(browser, address, username)
    verify(browser, client, address)
    enter(browser, address)


def settle(browser):
    """Creates an organization and a project, as a new user does."""
    assert browser.path() == "/console/organizations", browser.path()
    browser.click("Create an organization")
    browser.type(name="Anvils & Co")
    browser.click("Create the organization")
    browser.expect("The organization is ready.", "Each project has its own keys, members, settings and usage.")
    browser.click("Create a project")
    browser.type(name="Checkout", description="Answers of the shop.")
    browser.click("Create the project")
    browser.expect("The project is ready.", "Apps call models with an API key")


def create_key(browser):
    browser.click("Create a key")
    browser.type(name="Shop")
    browser.click("Create the key")
    browser.expect("Shop is ready", "You won’t be able to see it again")
    return take_secret(browser)


def take_secret(browser):
    """Copies the secret, and leaves the page after confirming that the secret is stored."""
    secret = browser.text("#secret")
    browser.one("[data-copy=secret]").click()
    browser.wait("the copy", "document.querySelector('[data-copy=secret]').textContent === 'Copied'")
    copied = browser.copied()
    assert copied in (secret, None), (copied, secret)
    is_asked = "const e = new Event('beforeunload', {cancelable: true}); dispatchEvent(e); return e.defaultPrevented"
    assert browser.driver.execute_script(is_asked), "leaving isn't asked about"
    browser.samples = {name: browser.text(f"#{name}") for name in ["curl", "python", "node"]}
    browser.one("#kept").click()
    assert not browser.driver.execute_script(is_asked), "leaving is still asked about"
    browser.click("Go to the key")
    assert secret not in browser.driver.page_source
    return secret


def call_with(browser, client, secret):
    """Calls a model with the curl command on the page."""
    line = browser.samples["curl"]
    assert secret in line and client.url in line, line
    if shutil.which("curl"):
        answer = subprocess.run(["sh", "-c", line.replace("curl ", "curl -sS ", 1)], capture_output=True, text=True, check=True).stdout
        assert json.loads(answer)["choices"][0]["message"]["content"], answer
    else:
        client.chat(secret)


def playground(browser):
    browser.click("Playground", ".side a")
    browser.type(message="Who are you?")
    browser.one("main button.main").click()
    browser.wait("the price of the call", ANSWERED)
    browser.expect("Input tokens", "Output tokens", "TOLLKEEPER_API_KEY")
    assert browser.text("[data-shown=text]"), browser.text()
    return 2


def read_usage(browser, calls, person):
    """Checks that chart, table and file have the same numbers."""
    def shown():
        browser.click("Usage", ".side ul:first-of-type a")
        return browser.all("svg") and browser.text(".figures div:nth-of-type(2) dd") == str(calls)

    # The server counts a call after it has answered it.
    until("the usage of the calls", shown)
    browser.leave(browser.one('#by option[value="key"]').click)
    assert "by=key" in browser.path(), browser.path()
    bars = [re.fullmatch(r"(\d+ \w+ \d+), (.*): (\S+)", bar.get_attribute("textContent")).groups() for bar in browser.all("svg title")]
    chart = sorted((day, name, float(amount)) for day, name, amount in bars)
    # A rounded figure has the exact amount as its title.
    exact = "return (arguments[0].querySelector('[title]')?.title ?? arguments[0].innerText).split(' USD')[0]"
    cell_text = lambda cell: browser.driver.execute_script(exact, cell)
    rows = [[cell_text(cell) for cell in row.find_elements("css selector", "th, td")] for row in browser.all(".table tbody tr")]
    table = sorted((row[0], row[1], float(row[5])) for row in rows)
    link = browser.one("a.csv").get_attribute("href")
    text = browser.driver.execute_async_script("fetch(arguments[0]).then((answer) => answer.text()).then(arguments[1])", link)
    lines = list(csv.DictReader(io.StringIO(text)))
    name = lambda line: line["api_key_name"] + ("" if line["api_key_id"] else " (without a key)")
    in_words = lambda date: f"{date.day} {date:%b %Y}"
    file = sorted((in_words(datetime.fromisoformat(line["date"])), name(line), float(line["chat_amount"])) for line in lines)
    assert chart == table == file and len(chart) == 2, (chart, table, text)
    assert {name for _, name, _ in chart} == {"Shop", f"{person} (without a key)"}, chart


def rotate(browser, client, old):
    browser.click("API keys", ".side a")
    browser.click("Shop", "main table a")
    browser.click("Rotate")
    browser.click("Rotate the key")
    browser.expect("Shop has a new secret", "The previous secret works until")
    new = take_secret(browser)
    for secret in [old, new]:
        client.chat(secret)
    browser.expect("This key has two secrets")
    first = browser.text("time[data-countdown]")
    assert re.fullmatch(r"in \d+ (hours?|minutes?|seconds?|days?)", first), first
    # Changes the deadline to a minute from now, because the last minutes are shown in seconds.
    soon = "const t = document.querySelector('time[data-countdown]'); t.dateTime = new Date(Date.now() + 60_000).toISOString()"
    browser.driver.execute_script(soon)
    seconds = "document.querySelector('time[data-countdown]').textContent.match(/^in ([0-9]+) seconds/)?.[1]"
    browser.wait("the countdown in seconds", seconds)
    start = browser.driver.execute_script(f"return {seconds}")
    browser.wait("the next seconds", f"{seconds} < {start}")
    browser.click("Revoke old secret")
    browser.expect("The previous secret is revoked")
    assert "two secrets" not in browser.text()
    client.chat(new)
    # The gateway applies the change a moment later.
    until("the end of the previous secret", lambda: refused(client, old))
    return new


def refused(client, secret):
    body = {"model": "svc-1", "messages": [{"role": "user", "content": "Hello"}]}
    return client.call("POST", "/v1/chat/completions", body, secret)[0] == 401


def invite(browser, client):
    """Invites a user without an account, who registers and joins. Returns the cookie of this user."""
    browser.click("Members", ".side ul:last-of-type a")
    browser.click("Invite a person")
    browser.type(email=OTHER, role="member", message="Come and join us!")
    browser.click("Send the invitation")
    browser.expect("Invitation sent.")
    browser.click("Invitations", ".tabs a")
    browser.expect(OTHER, "pending")
    link = client.mailed_link("/invitations/accept", OTHER)
    browser.become(None)
    browser.open(link)
    browser.click("Accept the invitation")
    assert browser.heading() == "Create your account first", browser.text()
    join(browser, client, OTHER, "kim")
    browser.expect("Anvils & Co")
    assert "Invite a person" not in browser.text("body")
    return browser.cookie()


def members(browser):
    """Opens the members of the organization."""
    browser.open("/console/organizations")
    browser.click("Anvils & Co", "main a")
    browser.click("Members", ".side a")


def promote_and_remove(browser, client, mine, theirs):
    browser.become(mine)
    members(browser)
    browser.click("kim", "main table a")
    browser.type(role="admin")
    browser.click("Change the role")
    browser.expect("The role is changed.")
    browser.become(theirs)
    members(browser)
    browser.click("Invite a person")
    place = browser.path()
    browser.become(mine)
    members(browser)
    browser.click("Remove kim", "main table a")
    browser.expect("What ends", "What keeps working")
    browser.click("Remove kim", "main button")
    browser.expect("The member is removed.")
    assert "kim" not in browser.text("main table")
    browser.become(theirs)
    browser.open(place)
    assert browser.heading() == "Access denied", browser.text()
    browser.click("Go to your organizations")
    browser.expect("Create an organization")
    # The browser logs the status of the refused page.
    browser.complaints(403)


def read_invoice(browser, client, world, mine):
    """Opens an invoice of an older organization, after its owner has invited the user. The menu leads to the
    organization."""
    world.make(f"{world.northwind.top}/invitations", {"email": ADDRESS, "role": "admin"}, "olivia")
    browser.become(mine)
    browser.open(client.mailed_link("/invitations/accept", ADDRESS))
    browser.click("Accept the invitation")
    browser.expect("now a member of Northwind Research.")
    browser.open("/console/")
    browser.one(".crumbs summary").click()
    browser.click("Northwind Research", ".crumbs a")
    assert browser.heading() == "Northwind Research"
    browser.click("Billing", ".side a")
    browser.click("Invoices", ".tabs a")
    row = browser.all(".table tbody tr")[0]
    amount = row.find_elements("css selector", "td")[3].text
    browser.leave(row.find_element("css selector", "a").click)
    assert "Northwind Research" in browser.text("body") and amount.split()[0] in browser.text("body"), (amount, browser.text("body"))
    # Prints the invoice as a PDF.
    printed = browser.cdp("Page.printToPDF")
    assert len(printed["data"]) > 1_000
    browser.picture("invoice-1280-light")


def read_audit_log(browser):
    browser.open("/console/organizations")
    browser.click("Anvils & Co", "main a")
    browser.click("Audit log", ".side a")
    text = browser.text("main table")
    assert all(words in text for words in ["Organization member removed", "API key rotated", "API key created", "Project created"]), text
    # The form is submitted when an option is chosen.
    options = [one for one in browser.all("#action option") if one.text == "API key rotated"]
    browser.leave(options[0].click)
    actions = [row.find_elements("css selector", "td")[2].text for row in browser.all(".table tbody tr")]
    assert actions == ["API key rotated"], actions


def read_times(browser):
    """Times are those of the reader's zone, with the time in UTC as title. Days are UTC everywhere."""
    browser.cdp("Emulation.setTimezoneOverride", timezoneId="Asia/Kathmandu")
    try:
        browser.driver.refresh()
        time = browser.all("main table time")[0]
        at = datetime.fromisoformat(time.get_attribute("datetime"))
        assert time.get_attribute("title") == f"{at.day} {at:%b %Y, %H:%M:%S} UTC", time.get_attribute("outerHTML")
        there = at + timedelta(hours=5, minutes=45)
        expected = f"{there:%b} {there.day}, {there.year}, {there.hour % 12 or 12}:{there:%M %p}"
        assert time.text.replace("\u202f", " ") == expected, (time.text, expected)
        browser.click("Billing", ".side a")
        fact = browser.one(".facts div:nth-child(4)").text
        assert re.fullmatch(r"Invoice date\n2 [A-Z][a-z]{2} 20\d\d", fact), fact
    finally:
        browser.cdp("Emulation.setTimezoneOverride", timezoneId="")


def end_sessions(browser, client):
    token = client.post("/v1/auth/login", {"email": ADDRESS, "password": PASSWORD})["access_token"]
    browser.one(".person summary").click()
    browser.click("Your account", ".person a")
    browser.click("Sessions", ".tabs a")
    browser.expect("this one", "Python")
    browser.leave(browser.all("main table button")[0].click)
    browser.expect("The session has ended.")
    assert client.call("GET", "/v1/auth/me", token=token)[0] == 401


def sign_out(browser):
    browser.one(".person summary").click()
    browser.click("Sign out", ".person button")
    browser.expect("You’re signed out.")
    assert browser.cookie() is None
    browser.leave(browser.driver.back)
    browser.open("/console/account")
    assert browser.path().startswith("/console/sign-in?next="), browser.path()
