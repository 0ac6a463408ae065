//! How an error names its place, the line and the file, and that it never shows a password.

use tower_throttle::{Config, ConfigFile};

use super::{read, refusal};

#[test]
fn a_name_that_is_used_twice_is_refused_where_it_is_used_again() {
    let one = "[[policy]]\nname = \"a\"\nalgorithm = \"gcra\"\nlimit = \"1/s\"\nkey = \"peer\"\n";
    assert_eq!(
        refusal(&format!("store = \"memory\"\n{one}{one}")),
        "line 8: policy \"a\": name: is used twice, give each policy its own"
    );
}

#[test]
fn a_broken_text_is_refused_in_its_line() {
    for (text, refused) in [
        ("store = \"memory\"\nheaders = \n", "line 2: headers: "),
        (
            "store = \"memory\"\nstore = 1\n",
            "line 2: store: duplicate key",
        ),
        ("store = \"memory\"\n[[policy]\n", "line 2: "),
        ("store = \"redis://:hunter2@h\n", "line 1: store: "),
        ("store: \"redis://:hunter2@h/0?a=b\"\n", "line 1: "),
        ("store \"redis://:hunter2@h\" = 1\n", "line 1: "),
        // A key on its own line of a list, without the opening quote.
        (
            "store = \"memory\"\ndeny = [{ key = \"header:x-api-key\", values = [\n  hunter2=\",\n]}]\n",
            "line 3: ",
        ),
    ] {
        let refusal = refusal(text);
        assert!(refusal.starts_with(refused), "{refusal}");
        assert!(!refusal.contains("hunter2"), "{refusal}");
    }
}

/// Such a file may be one that is still being written, or of which the rest is lost.
#[test]
fn a_file_without_policies_is_refused_unless_it_says_so() {
    for head in [
        "store = \"memory\"\n",
        "store = \"memory\"\ndeny = [\"::1\"]\n",
    ] {
        let refused = refusal(head);
        assert!(
            refused.starts_with("line 1: policy: is missing"),
            "{refused}"
        );
        assert!(refused.contains("policy = []"), "{refused}");
        let limiter = read(&format!("{head}policy = []\n")).connect_lazy();
        assert!(limiter.unwrap().policy_names().is_empty());
    }
    let refused = serde_json::from_str::<Config>(r#"{"store": "memory"}"#).unwrap_err();
    assert!(
        refused.to_string().contains("policy: is missing"),
        "{refused}"
    );
    assert!(serde_json::from_str::<Config>(r#"{"store": "memory", "policy": []}"#).is_ok());
}

#[test]
fn a_refusal_never_shows_a_password() {
    for store in [
        "redsi://:hunter2@h",
        "redis-cluster://:hunter2@h/1",
        "redis://:hunter2@h:nope",
    ] {
        let refused = refusal(&format!("store = {store:?}\n"));
        assert!(refused.starts_with("line 1: store: "), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
    let config = read("store = \"redis://:hunter2@h:1\"\npolicy = []\n");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_file_that_is_not_utf_8_is_refused_with_the_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"store = \"memory\"\n# caf\xe9\n").unwrap();
    let refused = Config::from_file(file.path()).unwrap_err();
    assert_eq!(refused.line(), Some(2));
    assert_eq!(
        refused.to_string(),
        format!(
            "{}: line 2: the text is not UTF-8, save the file as UTF-8",
            file.path().display()
        )
    );
}

#[test]
fn a_file_is_named_in_its_refusal() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "store = 5\n").unwrap();
    let refused = Config::from_file(file.path()).unwrap_err();
    assert_eq!(refused.path(), Some(file.path()));
    let text = format!(
        "{}: line 1: store: got 5, expected \"memory\", or ",
        file.path().display()
    );
    assert!(refused.to_string().starts_with(&text), "{refused}");

    let missing = file.path().with_extension("missing");
    let refused = Config::from_file(&missing).unwrap_err();
    assert_eq!(refused.line(), None);
    let why = refused.io_error().unwrap().to_string();
    assert_eq!(
        refused.to_string(),
        format!("{}: the file cannot be read: {why}", missing.display())
    );
}

/// As `main` prints the error that it returns.
#[tokio::test]
async fn a_refusal_is_one_line_for_people_also_as_debug() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits\nERROR forged\u{1b}[2J.toml");
    let mut errors: Vec<Box<dyn std::error::Error>> = Vec::new();
    errors.push(Config::from_file(&path).unwrap_err().into());
    errors.push(ConfigFile::new(&path).open().await.unwrap_err().into());
    std::fs::write(&path, "store = 5\n").unwrap();
    errors.push(Config::from_file(&path).unwrap_err().into());
    errors.push(ConfigFile::new(&path).open().await.unwrap_err().into());
    let port = support::redis::free_port();
    let file = format!("store = \"redis://127.0.0.1:{port}\"\npolicy = []\n");
    std::fs::write(&path, file).unwrap();
    errors.push(ConfigFile::new(&path).open().await.unwrap_err().into());
    let [.., unreachable] = &errors[..] else {
        panic!("there are none");
    };
    assert!(
        unreachable.to_string().contains(&port.to_string()),
        "{unreachable}"
    );
    for error in errors {
        let line = error.to_string();
        assert_eq!(format!("{error:?}"), line);
        assert!(!line.contains(char::is_control), "{line}");
        assert!(error.source().is_none(), "{line}: a report repeats nothing");
    }
}

#[test]
fn a_number_is_shown_as_it_is_written() {
    for number in ["257", "0x101", "0o401", "0b100000001", "-1"] {
        let refusal = refusal(&format!("store = \"memory\"\nipv6_prefix = {number}\n"));
        let start = format!("line 2: ipv6_prefix: got {number}, ");
        assert!(refusal.starts_with(&start), "{refusal}");
    }
}
