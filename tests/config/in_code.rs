//! Policies in code beside those of the file.

use http::Request;
use tower_throttle::{Config, Limit, MINUTE, Policy};

use super::{answers, with_field};

fn in_code(name: &str) -> Policy {
    Policy::new(name, Limit::fixed_window(1, MINUTE))
}

#[tokio::test]
async fn a_policy_in_code_is_decided_together_with_those_of_the_file() {
    let config = Config::from_toml(&with_field("key = \"everybody\"")).unwrap();
    let config = config.policy(in_code("more")).unwrap();
    let limiter = config.connect().await.unwrap();
    assert_eq!(limiter.policy_names(), ["client", "more"]);
    let layer = config.layer(limiter.clone());
    for (status, left) in [(200, 99), (429, 99)] {
        assert_eq!(answers(&layer, Request::new(())).await.status(), status);
        let client = limiter.peek("client", tower_throttle::Key::everybody());
        assert_eq!(client.await.unwrap().remaining(), left);
    }
}

/// Nothing listens on port 1.
#[tokio::test]
async fn what_the_file_says_of_an_outage_holds_for_policies_in_code() {
    for (said, status) in [("allow", 200), ("deny", 503)] {
        let text = format!(
            "store = \"redis://127.0.0.1:1\"\non_store_failure = \"{said}\"\npolicy = []\n"
        );
        let config = Config::from_toml(&text).unwrap();
        let config = config.policy(in_code("more")).unwrap();
        let layer = config.layer(config.connect_lazy().unwrap());
        assert_eq!(answers(&layer, Request::new(())).await.status(), status);
    }
}

#[test]
fn a_policy_in_code_with_the_name_of_one_of_the_file_is_refused() {
    let config = Config::from_toml(&with_field("key = \"peer\"")).unwrap();
    assert_eq!(
        config.policy(in_code("client")).unwrap_err().to_string(),
        "policy \"client\": the name is used twice, give each policy its own"
    );
}
