"""Follows the steps of the README in a browser: readme.py URL README FOLDER PROFILE

A step opens <ADDRESS>, fills in *LABEL* with `VALUE`, and clicks **NAME**: a link, a button, or the label of a
checkbox. The lines of an `sh` block run in FOLDER and print the address that "Open it" opens. A **VALUE** that isn't
the name of an element must be visible on the page.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

import waits

URL, README, FOLDER, PROFILE = sys.argv[1:5]
WORDS = re.compile(r"```sh\n(?P<lines>.*?)```|(?P<open>Open it)|<(?P<address>http[^>]+)>|\*\*(?P<name>[^*]+)\*\*"
                   r"|\*(?P<label>[^*]+)\* `(?P<value>[^`]+)`", re.S)


def steps():
    text = pathlib.Path(README).read_text()
    section = text.split("### In a browser\n")[1].split("\n### ")[0]
    return [match.groupdict() for match in WORDS.finditer(section)]


def has(css, text):
    """Returns a JavaScript expression that is true if a visible element has this text."""
    return f"[...document.querySelectorAll('{css}')].some((one) => one.checkVisibility() && one.innerText.trim() === {json.dumps(text)})"


def says(text):
    """Returns a JavaScript expression that is true if the page contains this text."""
    return f"document.querySelector('main')?.innerText.includes({json.dumps(text)})"


class Reader:
    def __init__(self):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for option in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                       "--disable-background-networking", "--disable-component-update", "--disable-sync",
                       "--disable-quic", f"--user-data-dir={PROFILE}"]:
            options.add_argument(option)
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.printed = None
        self.form = None

    def named(self, name):
        """Returns the link, button or label with this name. Prefers an element of the form that was filled in last."""
        for place in [self.form, self.driver]:
            for css in ["button", "a", "label"]:
                for element in place.find_elements(By.CSS_SELECTOR, css) if place else []:
                    if element.text.strip() == name and element.is_displayed():
                        return element
        return None

    def shows(self, text):
        return self.driver.execute_script(f"return {says(text)}")

    def field(self, label):
        for element in self.driver.find_elements(By.TAG_NAME, "label"):
            if element.text.strip() == label and element.is_displayed():
                return self.driver.find_element(By.ID, element.get_attribute("for"))
        return None

    def follow(self, step):
        if step["lines"]:
            # The e-mail may not have been sent yet. A reader would try again.
            self.printed = waits.until(f"what {step['lines']} prints", lambda: self.run(step["lines"]))
        elif step["open"]:
            self.form = None
            self.driver.get(self.printed)
        elif step["address"]:
            self.driver.get(step["address"].replace("http://127.0.0.1:8080", URL))
        elif step["label"]:
            waits.wait(self.driver, f"the field {step['label']!r}", has("label", step["label"]))
            field = self.field(step["label"])
            assert field, f"no field {step['label']!r}: {self.page()}"
            field.clear()
            field.send_keys(step["value"])
            self.form = field.find_element(By.XPATH, "ancestor::form")
        else:
            self.press(step["name"])

    def run(self, lines):
        """Runs the lines, and returns the last word of their output."""
        done = subprocess.run(["bash", "-c", lines], cwd=FOLDER, capture_output=True, text=True)
        return done.stdout.split()[-1] if done.stdout else None

    def press(self, name):
        waits.wait(self.driver, f"what is named {name!r}", f"{has('button, a, label', name)} || {says(name)}")
        found = self.named(name) or self.shows(name)
        assert found, f"nothing is named {name!r}: {self.page()}"
        if found is True:
            print(f"the page shows {name}")
            return
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()
        self.form = None
        if name == "Send":
            waits.wait(self.driver, "the price", says("USD"))

    def page(self):
        return f"{self.driver.current_url}\n{self.driver.find_element(By.TAG_NAME, 'body').text}"


reader = Reader()
try:
    found = steps()
    assert len(found) > 30, found
    for step in found:
        reader.follow(step)
    assert reader.shows("0.0003 USD"), reader.page()
    exact = reader.driver.find_element(By.CSS_SELECTOR, ".figures [title]").get_attribute("title")
    assert exact == "0.000258 USD", exact
    assert "/usage" in reader.driver.current_url, reader.page()
    print("every step of the README works")
finally:
    reader.driver.quit()
