//! A headless Chromium, driven from outside by WebDriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;
use std::{env, iter};

use base64::prelude::{BASE64_STANDARD, Engine};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use super::redis::Process;
use super::web::GENEROUS;

/// The possible names of the programs; the first one found is used.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
const DRIVERS: [&str; 2] = ["chromedriver", "chromium.chromedriver"];

/// How often a driver is started that finds no port.
const MOST_TRIES: usize = 5;

/// Without a sandbox it also runs as root, as tests in containers do; it only ever sees pages of
/// the tests. The other options keep it from contacting anybody else.
const OPTIONS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
];

/// The name of an element's id: <https://www.w3.org/TR/webdriver2/#elements>.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser takes more than a fair share of a machine: one at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

pub struct Browser {
    client: Client,
    session: String,
    _driver: Driver,
    _alone: MutexGuard<'static, ()>,
}

struct Driver {
    process: Process,
    address: String,
    _profile: TempDir,
}

impl Browser {
    pub async fn start() -> Self {
        let alone = ALONE.lock().await;
        let driver = Driver::start();
        let mut options = OPTIONS.map(str::to_owned).to_vec();
        let profile = driver._profile.path().display();
        options.push(format!("--user-data-dir={profile}"));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": program(&BROWSERS), "args": options },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let client = Client::new();
        let sessions = format!("http://{}/session", driver.address);
        let made = call(&client, Method::POST, &sessions, Some(&wanted)).await;
        let id = made["sessionId"].as_str().expect("the session's id");
        Self {
            session: format!("{sessions}/{id}"),
            client,
            _driver: driver,
            _alone: alone,
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let url = format!("{}/{path}", self.session);
        call(&self.client, Method::POST, &url, Some(&body)).await
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("{}/{path}", self.session);
        call(&self.client, Method::GET, &url, None).await
    }

    /// Opens a page and waits until it is loaded.
    pub async fn open(&self, url: &str) {
        self.post("url", json!({ "url": url })).await;
    }

    /// Runs the body of a function in the page and returns its result; a promise is awaited.
    pub async fn run(&self, body: &str) -> Value {
        self.post("execute/sync", json!({ "script": body, "args": [] }))
            .await
    }

    /// Waits until an expression is true in the page.
    pub async fn until(&self, expression: &str) {
        let started = Instant::now();
        while self.run(&format!("return !!({expression})")).await != json!(true) {
            if started.elapsed() > GENEROUS {
                let text = self.run("return document.body.innerText").await;
                panic!(
                    "never so: {expression}\n{}",
                    text.as_str().unwrap_or_default()
                );
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// The text shown by the first element that matches.
    pub async fn text(&self, css: &str) -> String {
        let text = self
            .get(&format!("element/{}/text", self.element(css).await))
            .await;
        text.as_str().expect("a text").to_owned()
    }

    /// Clicks on the first element that matches, as a mouse does.
    pub async fn click(&self, css: &str) {
        let element = self.element(css).await;
        self.post(&format!("element/{element}/click"), json!({}))
            .await;
    }

    /// Types into the first element that matches, replacing its content.
    pub async fn fill(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        self.post(&format!("element/{element}/clear"), json!({}))
            .await;
        self.post(&format!("element/{element}/value"), json!({ "text": text }))
            .await;
    }

    /// Presses keys one after the other, for the element that has the focus.
    pub async fn press(&self, keys: &[char]) {
        let events = keys.iter().flat_map(|key| {
            ["keyDown", "keyUp"].map(|event| json!({ "type": event, "value": key }))
        });
        let keyboard = json!({
            "type": "key",
            "id": "keyboard",
            "actions": events.collect::<Vec<_>>(),
        });
        self.post("actions", json!({ "actions": [keyboard] })).await;
    }

    async fn element(&self, css: &str) -> String {
        let wanted = json!({ "using": "css selector", "value": css });
        let found = self.post("element", wanted).await;
        found[ELEMENT].as_str().expect("an element's id").to_owned()
    }

    /// Sets the size of the page, and whether the user prefers dark colours.
    pub async fn look(&self, width: u32, height: u32, is_dark: bool) {
        let device = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", device)
            .await;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({
            "features": [{ "name": "prefers-color-scheme", "value": scheme }],
        });
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        let body = json!({ "cmd": command, "params": parameters });
        self.post("goog/cdp/execute", body).await;
    }

    /// What the page shows, as PNG.
    pub async fn screenshot(&self) -> Vec<u8> {
        let encoded = self.get("screenshot").await;
        let encoded = encoded.as_str().expect("an image");
        BASE64_STANDARD.decode(encoded).expect("base64")
    }

    /// The warnings and errors on the console since the last call: script errors, failed requests,
    /// violations of the content security policy.
    pub async fn complaints(&self) -> Vec<String> {
        let entries = self.post("se/log", json!({ "type": "browser" })).await;
        let entries = entries.as_array().expect("a list").iter();
        entries
            .filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")))
            .map(|entry| entry["message"].to_string())
            .collect()
    }
}

impl Driver {
    fn start() -> Self {
        let mut started = iter::repeat_with(Self::try_start).take(MOST_TRIES);
        started.find_map(|driver| driver).expect("a driver's port")
    }

    /// `None` if it has ended without saying its port: somebody else took the one that it had chosen
    /// before it listened there.
    fn try_start() -> Option<Self> {
        let mut command = Command::new(program(&DRIVERS));
        command.arg("--port=0");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::spawn(&mut command);
        let said = process.stdout.take().expect("its output");
        let (sender, port) = mpsc::channel();
        // Reads on to the end, so that further output does not fill the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                if let Some((_, port)) = line.split_once("successfully on port ") {
                    let _ = sender.send(port.trim_end_matches('.').parse::<u16>());
                }
            }
        });
        let port = match port.recv_timeout(GENEROUS) {
            Ok(port) => port.expect("a port"),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => panic!("the driver does not say its port"),
        };
        Some(Self {
            process,
            address: format!("127.0.0.1:{port}"),
            _profile: tempfile::tempdir().expect("a directory"),
        })
    }

    /// Asks it to end itself and its browser, which would otherwise outlive it.
    fn shut_down(&self) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(GENEROUS))?;
        let host = &self.address;
        write!(
            stream,
            "GET /shutdown HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.shut_down().is_ok() {
            let _ = self.process.wait();
        }
    }
}

async fn call(client: &Client, method: Method, url: &str, body: Option<&Value>) -> Value {
    let mut request = client.request(method, url);
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.expect("the driver answers");
    let is_success = answer.status().is_success();
    let mut answer: Value = answer.json().await.expect("JSON");
    let value = answer["value"].take();
    assert!(is_success, "{url}: {}", value["message"]);
    value
}

fn program(names: &[&str]) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let find = |name: &&str| {
        let mut places = env::split_paths(&path).map(|place| place.join(name));
        places.find(|place| is_there(place))
    };
    names.iter().find_map(find).unwrap_or_else(|| {
        panic!(
            "this test needs one of {names:?} and found none: run scripts/test, which installs it, \
             or install Chromium and its driver (Debian: apt-get install chromium chromium-driver)"
        )
    })
}

fn is_there(program: &Path) -> bool {
    program.is_file()
}
