//! Policies in code beside those of the file.

use reqwest::Client;
use tower_throttle::{ConfigFile, DAY, Key, Limit, Mode, OpenError, Policy, RequestHead};

use super::file::{Limits, limit, serve, watch, with};

/// By the first part of the host, which no file can name.
fn tenant(permits: u64) -> Policy {
    let tenant = |request: &RequestHead<'_>| {
        let host = request.host()?;
        Some(Key::from(host.split('.').next()?))
    };
    Policy::new("tenant", Limit::fixed_window(permits, DAY)).by(tenant)
}

const SECOND_POLICY: &str =
    "[[policy]]\nname = \"tenant\"\nalgorithm = \"gcra\"\nlimit = \"9/day\"\nkey = \"host\"";

#[tokio::test]
async fn a_reload_keeps_policies_in_code_and_their_usage() {
    let file = Limits::new(&limit("9/day"));
    let with_tenants = ConfigFile::new(file.path()).policy(tenant(3)).unwrap();
    let mut limits = watch(with_tenants).await;
    let url = serve(limits.config.layer()).await;
    let status = async |host: &str| {
        let request = Client::new().get(&url).header("host", host);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("acme.example").await, 200);
    assert_eq!(status("acme.test").await, 200);

    file.replace(&limit("5/day"));
    limits.reloaded().await;
    assert_eq!(status("acme.example").await, 200);
    assert_eq!(status("acme.example").await, 429);
    assert_eq!(status("other.example").await, 200);
    // Decided together: what one denies is not charged under the other.
    let client = limits.config.limiter();
    let client = client.peek("client", Key::everybody()).await.unwrap();
    assert_eq!(client.remaining(), 1);
}

#[tokio::test]
async fn a_mode_of_a_policy_in_code_stays_as_it_was_set_at_run_time() {
    let file = Limits::new(&limit("3/day"));
    let with_tenants = ConfigFile::new(file.path()).policy(tenant(3)).unwrap();
    let mut limits = watch(with_tenants).await;
    let limiter = limits.config.limiter();
    limiter.set_mode("tenant", Mode::Shadow).unwrap();
    file.replace(&limit("5/day"));
    limits.reloaded().await;
    assert_eq!(limiter.mode("tenant").unwrap(), Mode::Shadow);
}

#[tokio::test]
async fn a_file_that_names_a_policy_in_code_is_refused_with_its_line() {
    let refusal = |file: &Limits, line: u32| {
        format!(
            "{}: line {line}: policy \"tenant\": name: is that of a policy in code, give each policy \
             its own",
            file.path().display()
        )
    };
    let file = Limits::new(&limit("3/day"));
    let with_tenants = || ConfigFile::new(file.path()).policy(tenant(3)).unwrap();
    let mut limits = watch(with_tenants()).await;
    file.replace(&with("", "5/day", SECOND_POLICY));
    assert_eq!(limits.outcome().await.unwrap_err(), refusal(&file, 9));
    assert_eq!(limits.remaining("client").await, 3);

    let refused = with_tenants().open().await.unwrap_err();
    assert!(matches!(&refused, OpenError::File(error) if error.line() == Some(9)));
    assert_eq!(refused.to_string(), refusal(&file, 9));
}

#[test]
fn a_wrong_policy_in_code_is_refused_when_it_is_added() {
    let refusal = |file: ConfigFile, policy| file.policy(policy).unwrap_err().to_string();
    let file = || ConfigFile::new("limits.toml");
    assert_eq!(
        refusal(file(), tenant(0)),
        "policy \"tenant\": limit: got 0, expected 1 to 999999999999999, or `Limit::nothing()`"
    );
    assert_eq!(
        refusal(file().policy(tenant(3)).unwrap(), tenant(5)),
        "policy \"tenant\": the name is used twice, give each policy its own"
    );
}
