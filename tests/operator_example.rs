//! The example `operator` from the outside: the password, and the page in a browser.
#![cfg(all(unix, feature = "axum", feature = "memory"))]

mod support;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use support::browser::Browser;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::example::program("operator"))
}

/// A running example, stopped with its test.
struct Running {
    process: Child,
    app: String,
    /// Where operators go, without user and password.
    operators: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(program())
            .args(arguments)
            .env("PORT", "0")
            .env("OPERATOR_PASSWORD", "secret")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut after = |start: &str| {
            let line = lines.next().unwrap().unwrap();
            line.strip_prefix(start).expect(start).to_owned()
        };
        let app = after("listening on ");
        let operators = format!("http://{}", after("for operators: http://operator@"));
        Self {
            process,
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

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn only_who_knows_the_password_sees_what_is_decided() {
    let example = Running::start(&[]);
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
    let mut command = Command::new(program());
    let refused = command.env_remove("OPERATOR_PASSWORD").output().unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("OPERATOR_PASSWORD is not set"), "{said}");
}

#[tokio::test]
async fn who_is_denied_most_is_on_the_page_and_can_be_looked_at() {
    let example = Running::start(&["--traffic"]);
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
    assert_eq!(browser.complaints().await, [""; 0]);
}

/// Draws the picture in the documentation, once five minutes of traffic are there to be seen:
///
/// ```sh
/// OPERATOR_SCREENSHOT=docs/operator.png \
///     cargo test --all-features --test operator_example -- --ignored
/// ```
#[tokio::test]
#[ignore = "draws a picture for the documentation, in five minutes"]
async fn the_picture_in_the_documentation_can_be_drawn() {
    let picture = std::env::var_os("OPERATOR_SCREENSHOT");
    let picture = PathBuf::from(picture.expect("OPERATOR_SCREENSHOT says where to"));
    let example = Running::start(&["--traffic"]);
    let browser = example.in_a_browser().await;
    tokio::time::sleep(Duration::from_secs(305)).await;
    browser.click("#top-list button").await;
    browser.until("document.querySelector('#answer b')").await;
    browser.look(1200, 880, false).await;
    browser.run("scrollTo(0, 0)").await;
    // Drawn anew at this size.
    browser
        .run("return new Promise((done) => setTimeout(done, 1500))")
        .await;
    std::fs::write(picture, browser.screenshot().await).unwrap();
}
