//! The configuration file: what stands there, and what must never be shown of it.

use tower_throttle::{Config, FileError};

/// Long enough that no input has it by chance.
const PASSWORD: &str = "pa55-w0rd-of-the-store";

/// Every text is taken or refused with its line; as it is, and behind a store's address with a
/// password, of which the first line of the text is the rest.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(error) = Config::from_toml(text) {
        assert_names_a_line(&error, text);
    }
    if text.contains(PASSWORD) {
        return;
    }
    let (tail, rest) = text.split_once('\n').unwrap_or((text, ""));
    for scheme in [
        "redis://:",
        "rediss://user:",
        "redsi:",
        "redis-cluster://u:",
    ] {
        let text = format!("store = \"{scheme}{PASSWORD}@{tail}\n{rest}");
        let told = match Config::from_toml(&text) {
            Ok(config) => format!("{config:?}"),
            Err(error) => {
                assert_names_a_line(&error, &text);
                format!(
                    "{error}, {error:?}, {:?}",
                    std::error::Error::source(&error)
                )
            }
        };
        assert!(!told.contains(PASSWORD), "{told}");
    }
}

fn assert_names_a_line(error: &FileError, text: &str) {
    let lines = 1 + text.bytes().filter(|&byte| byte == b'\n').count();
    let line = error.line().expect("a line");
    assert!(
        (1..=lines).contains(&line),
        "line {line} of {lines}: {error}"
    );
    let told = error.to_string();
    let problem = told.strip_prefix(&format!("line {line}: "));
    assert!(problem.is_some_and(|problem| !problem.is_empty()), "{told}");
}
