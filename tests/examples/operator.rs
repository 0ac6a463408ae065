//! The example `operator` from outside: the password, and the page in a browser.
#![cfg(all(unix, feature = "operator", feature = "memory", feature = "redis"))]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use support::browser::Browser;
use support::example::serving;
use support::redis::{Process, Server};

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::example::program("operator"))
}

/// A running example, stopped with its test.
struct Running {
    _process: Process,
    app: String,
    /// The operators' address, without user and password.
    operators: String,
}

impl Running {
    /// Counts in the process, or in the Redis at this URL.
    fn start(redis: Option<&str>, arguments: &[&str]) -> Self {
        let mut command = serving(program(), redis);
        command.args(arguments).env("OPERATOR_PASSWORD", "secret");
        let mut process = Process::spawn(&mut command);
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut after = |start: &str| {
            let line = lines.next().unwrap().unwrap();
            line.strip_prefix(start).expect(start).to_owned()
        };
        let app = after("listening on ");
        let operators = format!("http://{}", after("for operators: http://operator@"));
        Self {
            _process: process,
            app,
            operators,
        }
    }

    async fn state(&self, password: &str) -> reqwest::Response {
        let state = Client::new().get(format!("{}/state", self.operators));
        let state = state.basic_auth("operator", Some(password));
        state.send().await.unwrap()
    }

    async fn in_a_browser(&self) -> Browser {
        let browser = Browser::start().await;
        let (_, address) = self.operators.split_once("//").unwrap();
        browser
            .open(&format!("http://operator:secret@{address}"))
            .await;
        browser
            .until("document.querySelector('#policies tr')")
            .await;
        browser
    }
}

#[tokio::test]
async fn the_operators_page_needs_the_password() {
    let example = Running::start(None, &[]);
    let search = format!("{}/search", example.app);
    let visit = Client::new().get(search).header("x-user", "alice");
    assert_eq!(visit.send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(
        example.state("guessed").await.status(),
        StatusCode::UNAUTHORIZED
    );
    let state: Value = example.state("secret").await.json().await.unwrap();
    let decided = state["decisions"].as_object().unwrap().values();
    let decided: u64 = decided.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(decided, 2, "{state}");
    assert_eq!(state["policies"][2]["mode"], "shadow");
    assert_eq!(state["top_denied"], json!([]));
}

#[tokio::test]
async fn without_a_password_it_does_not_start() {
    let mut command = serving(program(), None);
    let refused = command.env_remove("OPERATOR_PASSWORD").output().unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("OPERATOR_PASSWORD is not set"), "{said}");
}

#[tokio::test]
async fn the_page_lists_the_most_denied_and_looks_them_up() {
    let example = Running::start(None, &["--traffic"]);
    let browser = example.in_a_browser().await;
    browser
        .until("document.querySelector('#top-list button')")
        .await;
    browser.click("#top-list button").await;
    browser.until("document.querySelector('#answer b')").await;
    let state: Value = example.state("secret").await.json().await.unwrap();
    let hash = state["top_denied"][0]["subject"].as_str().unwrap();
    let answer = browser.text("#answer").await;
    assert!(answer.contains(hash), "{answer}");
    // A policy in shadow mode denies nothing for real.
    let search = "[...document.querySelectorAll('#top-list li')]\
                  .find(line => line.textContent.startsWith('search'))";
    browser
        .until(&format!(
            "{search}?.textContent.includes('would be denied')"
        ))
        .await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

/// Also draws the picture in the documentation, after five minutes, if it is told where to:
///
/// ```sh
/// OPERATOR_SCREENSHOT=docs/operator.png cargo test --all-features --test operator_example picture
/// ```
#[tokio::test]
async fn the_picture_shows_the_chart_and_the_most_denied() {
    let redis = Server::start();
    let example = Running::start(Some(&redis.url()), &["--traffic"]);
    let browser = example.in_a_browser().await;
    let for_documentation = std::env::var_os("OPERATOR_SCREENSHOT");
    if for_documentation.is_some() {
        tokio::time::sleep(Duration::from_secs(305)).await;
    }
    browser
        .until("document.querySelector('#top-list button')")
        .await;
    browser.click("#top-list button").await;
    browser.until("document.querySelector('#answer b')").await;
    browser.look(1200, 940, false).await;
    browser.run("scrollTo(0, 0)").await;
    // Drawn anew at this size.
    browser
        .run("return new Promise((done) => setTimeout(done, 1500))")
        .await;
    let picture = browser.screenshot().await;
    // Its signature, and the width and height of its first chunk.
    assert_eq!(picture[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(
        picture[16..24],
        [1200_u32, 940].map(u32::to_be_bytes).concat()
    );
    if let Some(path) = for_documentation {
        std::fs::write(path, picture).unwrap();
    }
}
