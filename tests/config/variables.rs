//! `{ env = "..." }`, with variables that cargo sets for every test.

use std::sync::{Arc, Mutex};

use tower_throttle::{DecisionEvent, Key, Observer, Subject};

use super::{read, refusal, with_policy};

#[derive(Default)]
struct Subjects(Mutex<Vec<Subject>>);

impl Observer for Subjects {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        self.0.lock().unwrap().push(event.subject);
    }
}

#[tokio::test]
async fn a_secret_of_the_environment_hashes_the_subjects() {
    let policy = "name = \"client\"\nalgorithm = \"gcra\"\nlimit = \"100/min\"\nkey = \"user\"";
    for (secret, is_plain) in [
        ("", true),
        ("secret = { env = \"CARGO_PKG_NAME\" }\n", false),
    ] {
        let subjects = Arc::new(Subjects::default());
        let config = read(&format!("{secret}{}", with_policy(policy)));
        let limiter = config.observe(Arc::clone(&subjects)).connect_lazy();
        let _ = limiter.unwrap().check("client", "alice").await.unwrap();
        let plain = Subject::from(&Key::from("alice"));
        assert_eq!(*subjects.0.lock().unwrap() == [plain], is_plain);
    }
}

#[test]
fn a_secret_in_the_file_is_refused_and_not_shown() {
    for secret in ["\"hunter2\"", "8271936451029384", "0xfeed", "[\"hunter2\"]"] {
        assert_eq!(
            refusal(&format!("store = \"memory\"\nsecret = {secret}\n")),
            "line 2: secret: a secret does not belong in a file, name a variable that holds it, \
             such as { env = \"LIMITS_SECRET\" }"
        );
    }
}

#[test]
fn a_variable_that_is_not_set_is_refused_by_its_name() {
    assert_eq!(
        refusal("\nstore = { env = \"NO_SUCH_VARIABLE_HERE\" }\n"),
        "line 2: store.env: the variable \"NO_SUCH_VARIABLE_HERE\" is not set, set it to \"memory\", \
         or the address of a server, such as \"redis://127.0.0.1:6379\""
    );
}

#[test]
fn a_variable_that_names_no_store_is_refused_without_its_value() {
    assert_eq!(
        refusal("store = { env = \"CARGO_PKG_NAME\" }\n"),
        "line 1: store.env: the variable \"CARGO_PKG_NAME\": no store has this name, expected \
         \"memory\", or the address of a server, such as \"redis://127.0.0.1:6379\""
    );
}

#[test]
fn a_nonsensical_store_is_refused_with_its_variable() {
    for (store, problem) in [("5", "got 5"), ("\"memoyr\"", "no store has this name")] {
        assert_eq!(
            refusal(&format!("store = {store}\n")),
            format!(
                "line 1: store: {problem}, expected \"memory\", or the address of a server, such \
                 as \"redis://127.0.0.1:6379\", or a variable that holds one, such as {{ env = \
                 \"REDIS_URL\" }}"
            )
        );
    }
}

#[test]
fn a_table_that_names_no_variable_is_refused() {
    for (store, problem) in [
        ("{}", "store.env: is missing, write env = "),
        (
            "{ env = 5 }",
            "store.env: got 5, expected the name of a variable",
        ),
        (
            "{ file = \"x\" }",
            "store.file: is not a field here, expected one of env",
        ),
    ] {
        let refused = refusal(&format!("store = {store}\n"));
        assert!(
            refused.starts_with(&format!("line 1: {problem}")),
            "{refused}"
        );
    }
}

/// If a template inserts the variable's value, that is a password.
#[test]
fn an_invalid_variable_name_is_refused_without_being_shown() {
    for text in [
        "",
        "A=B",
        "A\\u0000",
        "1A",
        "redis://:hunter2@h:6379",
        "hunter2 ",
    ] {
        let refused = refusal(&format!("store = {{ env = \"{text}\" }}\n"));
        assert_eq!(
            refused,
            "line 1: store.env: expected the name of a variable, such as \"REDIS_URL\""
        );
    }
    // It could be a name, but names are expected in capitals.
    let refused = refusal("store = { env = \"hunter2\" }\n");
    let start =
        "line 1: store.env: the variable of this name is not set, set it to \"memory\", or ";
    assert!(refused.starts_with(start), "{refused}");
}
