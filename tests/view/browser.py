"""A real browser for tests: Chromium without a window, spoken to over a pipe in its own protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str:
    """The browser to use; where there is none, the error says what to do."""
    wanted = os.environ.get("TINTYPE_BROWSER")
    found = next((path for path in map(shutil.which, [wanted] if wanted else NAMES) if path), None)
    if found is None:
        raise LookupError(
            "These tests need Chromium, and there is none. Install it (Debian: apt-get install chromium), or name "
            "one with TINTYPE_BROWSER=/path/to/chromium."
        )
    return found


class Browser:
    """One tab. ``messages`` has everything that the page said on its console, and the errors of its code."""

    def __init__(self, width: int = 1440, height: int = 900) -> None:
        self._profile = tempfile.mkdtemp(prefix="tintype-browser-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--disable-background-networking", "--disable-extensions", f"--window-size={width},{height}",
                   f"--user-data-dir={self._profile}", "--remote-debugging-pipe", "about:blank"]  # fmt: skip

        def use_pipes() -> None:  # the browser reads from descriptor 3 and writes to 4
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [find_browser(), *options], preexec_fn=use_pipes, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.messages: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        self._note(found)
        return found

    def _note(self, message: dict[str, Any]) -> None:
        method, given = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(each.get("value")) for each in given["args"]))
        elif method == "Log.entryAdded":
            self.messages.append(given["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])

    def open(self, path: Path) -> None:
        """Open a file, and wait until the page says that it is ready."""
        self._call("Page.navigate", url=path.resolve().as_uri())
        self.evaluate("""new Promise((done) => {
            const look = () => document.documentElement?.dataset.ready ? done(true) : setTimeout(look, 5);
            look();
        })""")

    def evaluate(self, code: str) -> Any:
        """The value of an expression in the page."""
        found = self._call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key: one that writes, or ArrowDown, Enter, Escape and their like."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        """Write text into what has the focus."""
        self._call("Input.insertText", text=text)

    def screenshot(self, path: Path, *, dark: bool = False) -> None:
        """Write a picture of the page."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=features)
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))
