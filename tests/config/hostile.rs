//! Whatever stands in a file, its error is one line that shows all of it: nobody who can write a
//! part of a file can forge or hide lines of the log.

use std::error::Error;

use proptest::prelude::*;
use proptest::sample::select;
use tower_throttle::Config;

use super::schema::{fields_of_file, fields_of_policy};

const HIDDEN: [char; 10] = [
    '\n', '\r', '\t', '\0', '\u{1b}', '\u{7f}', '\u{85}', '\u{202e}', '\u{2028}', '\u{feff}',
];

fn hostile() -> impl Strategy<Value = String> {
    let letter = prop_oneof![
        select(&HIDDEN[..]),
        any::<char>(),
        select(vec!['a', '=', '"', '\'', '[', ':'])
    ];
    proptest::collection::vec(letter, 1..20).prop_map(String::from_iter)
}

/// As JSON, and as TOML, too, if the character is escaped that JSON leaves alone.
fn quoted() -> impl Strategy<Value = String> {
    hostile().prop_map(|text| {
        let json = serde_json::to_string(&text).unwrap();
        json.replace('\u{7f}', "\\u007f")
    })
}

/// Names, values and whole texts from somebody else.
fn files() -> impl Strategy<Value = String> {
    let tables = [
        "{} = 1",
        "penalty = { {} = 1 }",
        "tiers = [{ {} = 1 }]",
        "tiers = [{ values = {}, limit = {} }]",
    ];
    let of_policy = fields_of_policy()
        .into_iter()
        .map(|name| format!("{name} = {{}}"));
    let of_policy: Vec<_> = of_policy.chain(tables.map(str::to_owned)).collect();
    let of_file = fields_of_file()
        .into_iter()
        .map(|name| format!("{name} = {{}}"));
    let tables = [
        "{} = 1",
        "store = { {} = 1 }",
        "store = { env = {} }",
        "tls = { {} = 1 }",
        "tls = { ca_file = {} }",
        "tls = { server_name = {} }",
        "deny = [{ key = {}, values = {} }]",
        "deny = [{}]",
        "headers = [{}]",
    ];
    let of_file: Vec<_> = of_file.chain(tables.map(str::to_owned)).collect();
    prop_oneof![
        (quoted(), select(of_file))
            .prop_map(|(text, field)| { field.replace("{}", &text) + "\nstore = \"memory\"\n" }),
        (quoted(), quoted(), select(of_policy)).prop_map(|(name, text, field)| {
            format!(
                "store = \"memory\"\n[[policy]]\nname = {name}\n{}\n",
                field.replace("{}", &text)
            )
        }),
        hostile().prop_map(|text| format!("store = \"memory\"\n{text}")),
    ]
}

/// The error and its causes.
fn shown(error: &dyn Error) -> Vec<String> {
    let (mut shown, mut cause) = (vec![error.to_string()], error.source());
    while let Some(error) = cause {
        shown.push(error.to_string());
        cause = error.source();
    }
    shown
}

fn is_one_line(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || HIDDEN.contains(&c))
}

proptest! {
    #[test]
    fn an_error_is_one_line_whatever_is_in_the_file(text in files()) {
        if let Err(error) = Config::from_toml(&text) {
            for shown in shown(&error) {
                prop_assert!(is_one_line(&shown), "{text:?}: {shown:?}");
            }
            prop_assert!(is_one_line(&format!("{error:?}")), "{text:?}: {error:?}");
        }
    }

    #[test]
    fn an_error_of_another_format_is_one_line(names in proptest::collection::vec(hostile(), 1..4)) {
        let name = serde_json::to_string(&names[0]).unwrap();
        for json in [
            format!("{{{name}: 1}}"),
            format!("{{{name}: 1, {name}: 2}}"),
            format!("{{{name}: {{{name}: 1, {name}: 2}}}}"),
            format!("{{{name}: [null]}}"),
            format!("{{\"policy\": [{{\"name\": {name}, {name}: [null]}}]}}"),
            format!("{{\"store\": {name}}}"),
        ] {
            let error = serde_json::from_str::<Config>(&json).unwrap_err();
            prop_assert!(is_one_line(&error.to_string()), "{json:?}: {error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_name_of_a_file_is_shown_on_one_line(name in hostile()) {
        prop_assume!(!name.contains(['\0', '/']) && name != "." && name != "..");
        for error in [
            Config::from_file(format!("/nowhere/{name}")).unwrap_err(),
            {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join(&name);
                std::fs::write(&path, "store = 5").unwrap();
                Config::from_file(path).unwrap_err()
            },
        ] {
            prop_assert!(is_one_line(&error.to_string()), "{error}");
        }
    }
}
