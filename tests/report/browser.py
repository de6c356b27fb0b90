"""A headless Chromium for tests, spoken to over its debugging pipe."""
from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
import time
from typing import Any, List, Optional

CHROMIUM = next(filter(None, map(shutil.which, (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None)


class Browser:
    """One page in a Chromium of its own; a context manager."""

    def __init__(self, folder: str, width: int = 1280, height: int = 900):
        self.folder, self.size = folder, (width, height)
        self.number = 0
        self.errors: List[str] = []

    def __enter__(self) -> "Browser":
        their_in, self.write_end = os.pipe()
        self.read_end, their_out = os.pipe()

        def descriptors() -> None:
            # Chromium reads commands from descriptor 3 and writes answers to 4.
            read, write = os.dup(their_in), os.dup(their_out)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--remote-debugging-pipe", "--user-data-dir=" + self.folder,
             "--window-size=%d,%d" % self.size, "about:blank"],
            preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(their_in)
        os.close(their_out)
        self.buffer = b""
        self.session: Optional[str] = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"]
                      if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"],
                                 flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Page.enable")
        return self

    def __exit__(self, *_: Any) -> None:
        self.session = None
        try:
            self.call("Browser.close")
        except (EOFError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)

    # ------------------------------------------------------------------ protocol
    def call(self, method: str, **parameters: Any) -> Any:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"]))
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]

    def _read(self) -> Any:
        while b"\0" not in self.buffer:
            part = os.read(self.read_end, 1 << 16)
            if not part:
                raise EOFError("Chromium ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    # ------------------------------------------------------------------ the page
    def open(self, path: str) -> None:
        self.call("Page.navigate", url="file://" + path)
        deadline_s = time.monotonic() + 30
        while self.run("document.readyState + location.protocol") != "completefile:":
            if time.monotonic() > deadline_s:
                raise TimeoutError(path)
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def place(self, selector: str) -> Any:
        """[left, top, width, height] of an element, scrolled into view."""
        return self.run(
            "(e => { e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.left, b.top, b.width, b.height]; })(document.querySelector(%s))"
            % json.dumps(selector))

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str) -> None:
        left, top, width, height = self.place(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, left + width / 2, top + height / 2, button="left", clickCount=1)

    def drag(self, x0: float, y0: float, x1: float, y1: float) -> None:
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1)
        self.mouse("mouseMoved", x1, y1, button="left", buttons=1)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1)

    def screenshot(self) -> Any:
        """The visible page as an array of height x width x 3 bytes."""
        from matplotlib.image import imread
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return (imread(io.BytesIO(data), format="png")[:, :, :3] * 255).round().astype(int)
