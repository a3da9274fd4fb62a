"""Drives the page of a server through a browser's debugging pipe; page.sh has made the volume."""

import base64, json, os, select, signal, socket, struct, subprocess, sys, time

work, program, browser = os.environ["WORK"], os.environ.get("BIMETAL", "target/release/bimetal"), os.environ["BROWSER"]
program = os.path.realpath(program)
pictures = os.environ.get("PAGE_PICTURES")
WITHIN = 60


started = []


def fail(what):
    print("not so:", what)
    sys.exit(1)


class Browser:
    """One page, by JSON that ends with a zero byte, through two pipes."""

    def __init__(self):
        to_read, self.to = os.pipe()
        self.of, to_write = os.pipe()

        def pipes():
            # What the browser knows them by. First out of the way of each other.
            high = [os.dup2(to_read, 100), os.dup2(to_write, 101)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.child = subprocess.Popen(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe",
             f"--user-data-dir={work}/profile", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank"],
            preexec_fn=pipes, close_fds=False, env=dict(os.environ, HOME=work),
            stdout=subprocess.DEVNULL, stderr=open(f"{work}/browser.log", "w"))
        started.append(self)
        os.close(to_read)
        os.close(to_write)
        self.heard, self.number, self.answers = b"", 0, {}
        self.requests, self.errors = [], []
        target = self.say("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        self.session = self.say("Target.attachToTarget", {"targetId": target, "flatten": True}, None)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.say(f"{domain}.enable")

    def say(self, method, params=None, session=""):
        self.number += 1
        said = {"id": self.number, "method": method, "params": params or {}}
        if session is not None:
            said["sessionId"] = self.session
        os.write(self.to, json.dumps(said).encode() + b"\0")
        until = time.time() + WITHIN
        while self.number not in self.answers:
            self.listen(until - time.time())
            if time.time() > until or self.child.poll() is not None:
                print(open(f"{work}/browser.log").read()[-2000:])
                # A browser that does not run here says nothing of the page.
                sys.exit(77 if not self.answers else 1)
        answer = self.answers.pop(self.number)
        if "error" in answer:
            fail(f"{method}: {answer['error']}")
        return answer["result"]

    def listen(self, seconds):
        if not select.select([self.of], [], [], max(0, seconds))[0]:
            return
        self.heard += os.read(self.of, 1 << 20)
        *whole, self.heard = self.heard.split(b"\0")
        for text in whole:
            told = json.loads(text)
            if "id" in told:
                self.answers[told["id"]] = told
                continue
            method, params = told["method"], told["params"]
            if method == "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            elif method == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"])[:500])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                self.errors.append(json.dumps(params["args"])[:500])
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                entry = params["entry"]
                # That a server that was killed does not answer is no fault of the page's.
                if entry["source"] != "network" or "ERR_CONNECTION" not in entry["text"] and "ERR_INCOMPLETE" not in entry["text"]:
                    self.errors.append(json.dumps(entry)[:500])

    def tell(self, expression):
        result = self.say("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in result:
            fail(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, what, expression):
        # What is asked for may not be there yet.
        expression = f"(() => {{ try {{ return {expression} }} catch (error) {{ return false }} }})()"
        end = time.time() + WITHIN
        while not self.tell(expression):
            if time.time() > end:
                fail(f"{what}; the page says {self.tell('document.body.innerText')[:600]!r}")
            self.listen(0.1)

    def press(self, key, code=None, text=None):
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        params = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        down = dict(params, type="keyDown", **({"text": "\r"} if key == "Enter" else {}))
        self.say("Input.dispatchKeyEvent", down)
        self.say("Input.dispatchKeyEvent", dict(params, type="keyUp"))

    def looks(self, width, height, dark, name):
        self.say("Emulation.setDeviceMetricsOverride",
                 {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
        self.tell(f"document.documentElement.classList.contains('dark') === {str(dark).lower()} || document.getElementById('theme').click()")
        for _ in range(6):
            self.listen(0.2)
        over = self.tell("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if over > 0:
            fail(f"a page of {width} is as wide as its window: {over} pixels more")
        if pictures:
            os.makedirs(pictures, exist_ok=True)
            shot = self.say("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": False})
            with open(f"{pictures}/{name}.png", "wb") as file:
                file.write(base64.b64decode(shot["data"]))


class Server:
    def __init__(self, port):
        self.port, self.child = port, None
        started.append(self)
        self.start()

    def start(self):
        self.child = subprocess.Popen(
            [program, "serve", f"{work}/v.toml", "--nbd", f"unix:{os.environ['SOCKET']}", "--http", f"127.0.0.1:{self.port}"],
            stdout=subprocess.PIPE, stderr=open(f"{work}/server.log", "a"), text=True)
        for line in self.child.stdout:
            if line.startswith("page: "):
                return
        fail("the server ended: " + open(f"{work}/server.log").read()[-500:])

    def kill(self):
        self.child.kill()
        self.child.wait()


class Load:
    """A client that writes and reads, one request at a time."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.environ["SOCKET"])
        self.take(18)
        self.socket.sendall(struct.pack(">I", 3))
        # NBD_OPT_EXPORT_NAME of the one that is there by default.
        self.socket.sendall(struct.pack(">QII", 0x49484156454F5054, 1, 0))
        self.size = struct.unpack(">QH", self.take(10))[0]
        self.number = 0

    def take(self, length):
        bytes = b""
        while len(bytes) < length:
            got = self.socket.recv(length - len(bytes))
            if not got:
                fail("the server ended a client")
            bytes += got
        return bytes

    def run(self, requests):
        for _ in range(requests):
            self.number += 1
            at = self.number * 7919 % (self.size // 2 // 65536) * 65536
            write = self.number % 3 == 0
            head = struct.pack(">IHHQQI", 0x25609513, 0, 1 if write else 0, self.number, at, 4096)
            self.socket.sendall(head + (b"x" * 4096 if write else b""))
            _, error, _ = struct.unpack(">IIQ", self.take(16))
            if error:
                fail(f"a request fails: {error}")
            if not write:
                self.take(4096)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def by_keyboard(page):
    """Everything is reached with Tab, and does what it is for with Enter."""
    page.tell("document.activeElement.blur()")
    names, reached = [], set()
    for _ in range(40):
        page.press("Tab")
        name = page.tell("(e => e.id || e.dataset.span || e.dataset.map || e.className || e.tagName)(document.activeElement)")
        names.append(name)
        if name in ("hour", "heat"):
            page.press("Enter")
            page.until(f"Enter presses {name}", f"document.querySelector('[data-span={name}],[data-map={name}]').getAttribute('aria-pressed') === 'true'")
        if name == "map" and name not in reached:
            before = page.tell("document.getElementById('range').textContent")
            page.press("ArrowRight")
            page.press("ArrowDown")
            if page.tell("document.getElementById('range').textContent") == before:
                fail("arrows move in the map")
            page.press("Enter")
            page.until("Enter looks closer", "!document.getElementById('out').disabled")
            page.press("Escape")
            page.until("Escape goes back", "document.getElementById('out').disabled")
        reached.add(name)
    for name in ("skip", "theme", "minutes", "hour", "day", "year", "tier", "heat", "map", "statuslink"):
        if name not in reached:
            fail(f"Tab comes to {name}: {names}")
    page.tell("document.querySelector('[data-span=minutes]').click(); document.querySelector('[data-map=tier]').click()")


def by_mouse(page):
    """A stretch that is marked in one chart is enlarged in all of them, and given up again."""
    page.tell("document.querySelector('#plots .u-over').scrollIntoView({ block: 'center' })")
    x, y, width, height = page.tell("(b => [b.x, b.y, b.width, b.height])(document.querySelector('#plots .u-over').getBoundingClientRect())")
    for kind, at in (("mouseMoved", 0.5), ("mousePressed", 0.5), ("mouseMoved", 0.6), ("mouseMoved", 0.8), ("mouseReleased", 0.8)):
        page.say("Input.dispatchMouseEvent", {"type": kind, "x": x + width * at, "y": y + height / 2, "clickCount": 1,
                                              "button": "none" if kind == "mouseMoved" and at == 0.5 else "left"})
    page.until("a marked stretch is enlarged", "!document.getElementById('live').hidden")
    page.tell("document.getElementById('live').click()")
    page.until("and given up again", "document.getElementById('live').hidden")


def main():
    server = Server(free_port())
    load = Load()
    load.run(600)
    page = Browser()
    address = f"http://127.0.0.1:{server.port}/"
    page.say("Emulation.setDeviceMetricsOverride", {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    page.say("Page.navigate", {"url": address})
    page.until("figures come", "document.getElementById('state').textContent === 'open'")
    page.until("eight charts are drawn", "document.querySelectorAll('#plots canvas').length === 8")
    page.until("the map is drawn", "performance.getEntriesByName('first map').length > 0")
    # It is asked for before anything else that could be drawn, in one request, and is no more than a screen of parts.
    asked = [url for url in page.requests if "/api/" in url]
    if "/api/map" not in asked[0]:
        fail(f"the first map is asked for first: {asked}")
    size = page.tell("performance.getEntriesByType('resource').find(e => e.name.includes('/api/map')).decodedBodySize")
    cells = int(asked[0].split("cells=")[1])
    if not 0 < size <= 256 * cells:
        fail(f"a map of {cells} parts takes {size} bytes")
    print("the first map is there after", round(page.tell("performance.getEntriesByName('first map')[0].startTime")), "ms")
    for _ in range(4):
        load.run(300)
        page.listen(1)
    page.until("load is seen", "/ is well: of what was (read|written)/.test(document.getElementById('sentence').textContent)")
    page.until("events are there", "document.querySelectorAll('#events .kind').length > 0")
    figures = page.tell("document.querySelectorAll('#figures tr').length")
    if figures < 10:
        fail(f"figures are in a table: {figures} rows")
    by_keyboard(page)
    by_mouse(page)
    for width, height in ((1280, 1600), (390, 1600)):
        for dark in (False, True):
            page.looks(width, height, dark, f"page-{width}-{'dark' if dark else 'light'}")
    # A server that is killed: that is said, and the page goes on by itself.
    server.kill()
    page.until("it is said that nobody answers", "document.getElementById('state').textContent === 'no answer'")
    if "does not answer" not in page.tell("document.getElementById('sentence').textContent"):
        fail("the sentence says that nobody answers")
    page.looks(1280, 900, False, "page-gone")
    server.start()
    page.until("the page goes on by itself", "document.getElementById('state').textContent === 'open'")
    page.until("what happened is told", "/recovered/.test(document.getElementById('events').textContent)")
    Load().run(50)
    page.until("it follows the new server", "document.getElementById('figures').textContent.includes('opening 2')")
    foreign = [url for url in page.requests if not url.startswith((address, "data:", "about:"))]
    if foreign:
        fail(f"nobody else is asked: {foreign}")
    if page.errors:
        fail(f"no errors: {page.errors}")
    page.say("Browser.close", session=None)
    page.child.wait(WITHIN)
    server.child.send_signal(signal.SIGTERM)
    if server.child.wait(WITHIN):
        fail("the server ends as it should")


try:
    main()
finally:
    for one in started:
        one.child.kill()
        one.child.wait()
