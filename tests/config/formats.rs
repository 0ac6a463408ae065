//! The same configuration through serde, from other formats.

use serde::Deserialize;
use tower_throttle::Config;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    listen: String,
    limits: Config,
}

const JSON: &str = r#"{
    "listen": "127.0.0.1:3000",
    "limits": {
        "store": "memory",
        "headers": ["draft-11", "denials"],
        "policy": [
            {
                "name": "login",
                "algorithm": "sliding-log",
                "limit": "5/15min",
                "key": ["header:x-user", "peer"],
                "penalty": { "denials": 10, "within": "15min", "ban": "1h" }
            },
            { "name": "api", "algorithm": "gcra", "limit": "100/min", "burst": 20, "key": "peer" }
        ]
    }
}"#;

const YAML: &str = "
listen: 127.0.0.1:3000
limits:
  store: memory
  headers: [draft-11, denials]
  policy:
    - name: login
      algorithm: sliding-log
      limit: 5/15min
      key: ['header:x-user', peer]
      penalty: { denials: 10, within: 15min, ban: 1h }
    - name: api
      algorithm: gcra
      limit: 100/min
      burst: 20
      key: peer
";

const TOML: &str = r#"
listen = "127.0.0.1:3000"

[limits]
store = "memory"
headers = ["draft-11", "denials"]

[[limits.policy]]
name = "login"
algorithm = "sliding-log"
limit = "5/15min"
key = ["header:x-user", "peer"]
penalty = { denials = 10, within = "15min", ban = "1h" }

[[limits.policy]]
name = "api"
algorithm = "gcra"
limit = "100/min"
burst = 20
key = "peer"
"#;

fn of_json(text: &str) -> Result<Settings, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_configuration_is_the_same_from_every_format() {
    let all: [Settings; 3] = [
        of_json(JSON).unwrap(),
        serde_norway::from_str(YAML).unwrap(),
        toml::from_str(TOML).unwrap(),
    ];
    for settings in &all {
        assert_eq!(settings.listen, "127.0.0.1:3000");
        assert_eq!(format!("{settings:?}"), format!("{:?}", all[0]));
        assert_eq!(settings.limits.headers(), all[0].limits.headers());
        let limiter = settings.limits.connect().await.unwrap();
        for (policy, remaining) in [("login", 5), ("api", 20)] {
            let decision = limiter.peek(policy, "somebody").await.unwrap();
            assert_eq!(decision.remaining(), remaining, "{policy}");
        }
    }
}

#[test]
fn a_refusal_names_the_policy_the_field_and_what_would_be_right() {
    for (right, wrong, refused) in [
        (
            "\"burst\": 20",
            "\"burst\": 0",
            "policy \"api\": burst: got 0, expected 1 to 999999999999999, or limit = \"0/s\"",
        ),
        (
            "\"burst\": 20",
            "\"burts\": 20",
            "policy \"api\": burts: is not a field here, expected one of name, ",
        ),
        (
            "\"name\": \"api\", ",
            "",
            "policy 2: name: is missing, write name = \"client\"",
        ),
        (
            "\"within\": \"15min\"",
            "\"within\": 15",
            "policy \"login\": penalty.within: got 15, expected a time",
        ),
        (
            "\"store\": \"memory\"",
            "\"store\": [1]",
            "store: got a list, expected \"memory\", or ",
        ),
    ] {
        let refusal = of_json(&JSON.replace(right, wrong)).unwrap_err();
        assert!(refusal.starts_with(refused), "{refusal}");
    }
}

/// As generated settings have it.
#[tokio::test]
async fn a_field_that_is_null_is_left_out() {
    let sound = JSON.replace("\"memory\"", "\"memory\", \"prefix\": null");
    let sound = sound.replace("\"burst\": 20", "\"burst\": null, \"on\": null");
    let sound = sound.replace("\"ban\": \"1h\"", "\"ban\": \"1h\", \"longest\": null");
    let limiter = of_json(&sound).unwrap().limits.connect().await.unwrap();
    let decision = limiter.peek("api", "somebody").await.unwrap();
    assert_eq!(decision.remaining(), 100);
    let yaml = YAML.replace("burst: 20", "burst:");
    let limits = serde_norway::from_str::<Settings>(&yaml).unwrap().limits;
    let decision = limits
        .connect()
        .await
        .unwrap()
        .peek("api", "somebody")
        .await;
    assert_eq!(decision.unwrap().remaining(), 100);
    let refusal = of_json(&JSON.replace("\"memory\"", "null")).unwrap_err();
    assert!(refusal.starts_with("store: is missing, write"), "{refusal}");
}

#[test]
fn values_that_toml_lacks_are_refused_by_policy_and_field() {
    let in_list = "null cannot be an item of a list, leave it out";
    for (right, wrong, refused) in [
        (
            "\"burst\": 20",
            "\"burst\": 18446744073709551615",
            "policy \"api\": burst: got 18446744073709552000.0, expected ",
        ),
        (
            "\"denials\": 10",
            "\"denials\": 9223372036854775808",
            "policy \"login\": penalty.denials: got 9223372036854776000.0, expected ",
        ),
        (
            "[\"header:x-user\", \"peer\"]",
            "[\"header:x-user\", null]",
            &format!("policy \"login\": key: {in_list}"),
        ),
        (
            "\"name\": \"api\", ",
            "\"on\": [null], ",
            &format!("policy 2: on: {in_list}"),
        ),
        (
            "[\"draft-11\", \"denials\"]",
            "[null]",
            &format!("headers: {in_list}"),
        ),
        (
            "\"store\": \"memory\"",
            "\"store\": \"memory\", \"store\": \"memory\"",
            "store: is given twice",
        ),
    ] {
        let refusal = of_json(&JSON.replace(right, wrong)).unwrap_err();
        assert!(refusal.starts_with(refused), "{refusal}");
    }
}

/// The text that the reader gets has lines that nobody has seen.
#[test]
fn a_refusal_tells_no_line_but_that_of_the_format() {
    let refusal = of_json(&JSON.replace("\"gcra\"", "\"gcar\"")).unwrap_err();
    assert_eq!(refusal.matches("line ").count(), 1, "{refusal}");
    assert!(refusal.contains(" at line "), "{refusal}");
    let refused = toml::from_str::<Config>("store = \"memory\"\nheaders = 5\n").unwrap_err();
    assert!(refused.to_string().contains("headers: got 5"), "{refused}");
}

#[test]
fn a_refusal_shows_no_password() {
    let json = JSON.replace("\"memory\"", "\"redis://:hunter2@h:nope\"");
    let refusal = of_json(&json).unwrap_err();
    assert!(refusal.starts_with("store: "), "{refusal}");
    assert!(!refusal.contains("hunter2"), "{refusal}");
}
