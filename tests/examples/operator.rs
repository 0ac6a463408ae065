//! The example `operator` from outside: the password, and the page in a browser.
#![cfg(all(unix, feature = "operator", feature = "memory", feature = "redis"))]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::OnceLock;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use support::browser::Browser;
use support::example::serving;
use support::redis::Process;

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
async fn an_address_is_blocked_there_and_the_list_says_by_whom() {
    let example = Running::start(None, &[]);
    let visit = async || reqwest::get(&example.app).await.unwrap().status();
    assert_eq!(visit().await, StatusCode::OK);
    let block = Client::new().post(format!("{}/block", example.operators));
    let block = block.basic_auth("operator", Some("secret"));
    let body = json!({ "address": "127.0.0.1", "for_secs": 3_600, "reason": "scraping" });
    let answer = block.json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(visit().await, StatusCode::FORBIDDEN);
    let state: Value = example.state("secret").await.json().await.unwrap();
    assert_eq!(state["changes"][0]["by"], "operator");
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
