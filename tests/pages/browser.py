"""A headless browser for tests of pages, and the program that makes them."""
import os
import pathlib
import subprocess
import sys

try:
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.chrome.service import Service
except ImportError:
    print("skipped: python3-selenium is not installed")
    sys.exit(77)

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
if not (os.path.exists(CHROMIUM) and os.path.exists(DRIVER)):
    print("skipped: chromium or chromium-driver is not installed")
    sys.exit(77)

SHOAL = os.environ["SHOAL"]


def shoal(*arguments, code=0):
    """Runs the program; its standard output."""
    done = subprocess.run([SHOAL, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"shoal {arguments}: exit {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout


class Browser:
    """One window. Pages of files, or of this machine's addresses."""

    def __init__(self, width=1200, height=1600, dark=False):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--disable-background-networking", f"--user-data-dir={os.getcwd()}/profile-{id(self)}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        # A window has a least width; what the page sees has none.
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def open(self, page):
        self.driver.get(page if "://" in str(page) else pathlib.Path(page).absolute().as_uri())

    def run(self, script):
        return self.driver.execute_script(script)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector).text

    def errors(self):
        """What the page complained of."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self):
        """The addresses that the page asked for."""
        import json
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("chrome:")]  # its own start page

    def accessible(self):
        """Role and name of everything in the accessibility tree."""
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [(n.get("role", {}).get("value"), n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")]
