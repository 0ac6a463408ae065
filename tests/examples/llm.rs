//! The example `llm` from outside: streams that are charged for what they use.
#![cfg(all(feature = "calendar", feature = "memory"))]

use reqwest::{Client, Response};
use support::example::{listening, program, serving};
use support::redis::Process;
use support::web::quota_number;

async fn complete(url: &str, key: &str, words: u32) -> Response {
    let request = Client::new().get(format!("{url}/complete/{words}"));
    request.header("x-api-key", key).send().await.unwrap()
}

/// What is left of a policy, by the headers of a response.
fn left(response: &Response, policy: &str) -> u64 {
    let quota = response.headers()["ratelimit"].to_str().unwrap();
    let of_policy = quota.split(", ").find(|item| item.contains(policy));
    quota_number(of_policy.expect(quota), ";r=")
}

#[tokio::test]
async fn streams_cost_what_they_use_and_end_when_the_budget_does() {
    let mut process = Process::spawn(&mut serving(&program("llm"), None));
    let (url, _printed) = listening(&mut process);
    let unknown = Client::new().get(format!("{url}/complete/1")).send();
    assert_eq!(unknown.await.unwrap().status(), 401);

    let first = complete(&url, "alice", 30).await;
    assert_eq!(
        (left(&first, "tokens"), left(&first, "cents")),
        (180, 9_960)
    );
    let text = first.text().await.unwrap();
    assert_eq!(
        (text.matches("word").count(), text.ends_with("and out\n")),
        (30, true)
    );

    // 31 tokens and 62 cents, in place of the estimates.
    let second = complete(&url, "alice", 1_000).await;
    assert_eq!(
        (left(&second, "tokens"), left(&second, "cents")),
        (149, 9_898)
    );
    let text = second.text().await.unwrap();
    assert!(text.ends_with("[budget used up]\n"), "{text}");
    assert_eq!(text.matches("word").count(), 169);

    assert_eq!(complete(&url, "alice", 1).await.status(), 429);
    // Another key of the organisation has tokens of its own, and shares the money.
    let other = complete(&url, "bob", 1).await;
    assert_eq!(left(&other, "tokens"), 180);
    assert_eq!(left(&other, "cents"), 10_000 - 62 - 2 * 170 - 40);
    assert_eq!(left(&complete(&url, "carol", 1).await, "cents"), 9_960);
}
