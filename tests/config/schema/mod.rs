//! `docs/limits.schema.json`: generated from the types beside this file, and compared with what the
//! crate reads.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use jsonschema::Validator;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};
use tower_throttle::Config;

use super::whole::WHOLE;
use super::{refusal, with_field};

mod types;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/limits.schema.json");

/// In the draft that editors support.
fn made_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07()
        .for_deserialize()
        .with(|settings| {
            settings.inline_subschemas = true;
        });
    let settings = settings.with_transform(RecursiveTransform(without_null));
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// A field that may be left out may still not be null: TOML has no such value.
fn without_null(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if let Some(Value::Array(kinds)) = object.get_mut("anyOf") {
        kinds.retain(|kind| kind.get("type").is_none_or(|name| name != "null"));
        if let [Value::Object(only)] = &kinds[..] {
            let only = only.clone();
            object.remove("anyOf");
            for (name, value) in only {
                object.entry(name).or_insert(value);
            }
        }
    }
}

/// Whether the committed schema allows a TOML text.
pub(super) fn allows(text: &str) -> bool {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    let validator = VALIDATOR.get_or_init(|| {
        let schema = serde_json::from_str(&fs::read_to_string(PATH).unwrap()).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    });
    let file: Value = toml::from_str(text).unwrap();
    validator.is_valid(&file)
}

#[test]
fn the_committed_schema_is_that_of_the_format() {
    let made = made_of::<types::File>();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(PATH, format!("{made:#}\n")).unwrap();
    }
    let committed = fs::read_to_string(PATH).unwrap();
    assert!(
        serde_json::from_str::<Value>(&committed).unwrap() == made,
        "docs/limits.schema.json is not what the types make, run this test with UPDATE_SCHEMA=1"
    );
}

/// The names at the end of such an error.
fn expected_one_of(refusal: &str) -> BTreeSet<String> {
    let (_, names) = refusal.split_once("expected one of ").unwrap();
    let names = names.split(", ").map(|name| name.trim_matches('"'));
    names.map(str::to_owned).collect()
}

fn names_of(properties: &Value) -> BTreeSet<String> {
    let properties: &Map<_, _> = properties.as_object().unwrap();
    properties.keys().cloned().collect()
}

pub(super) fn fields_of_file() -> BTreeSet<String> {
    expected_one_of(&refusal("x = 1\n"))
}

pub(super) fn fields_of_policy() -> BTreeSet<String> {
    expected_one_of(&refusal(&with_field("x = 1")))
}

#[test]
fn the_schema_has_the_fields_that_are_read_and_no_others() {
    let in_list = |list: &str| refusal(&format!("store = \"memory\"\ndeny = [{list}]\n"));
    for (schema, refusal) in [
        (made_of::<types::File>(), refusal("x = 1\n")),
        (made_of::<types::Policy>(), refusal(&with_field("x = 1"))),
        (
            made_of::<types::Penalty>(),
            refusal(&with_field("penalty = { x = 1 }")),
        ),
        (
            made_of::<types::Tier>(),
            refusal(&with_field("tiers = [{ x = 1 }]")),
        ),
        (
            made_of::<types::PrefetchTerms>(),
            refusal(&with_field("prefetch = { x = 1 }")),
        ),
        (
            made_of::<types::Tls>(),
            refusal("store = \"memory\"\ntls = { x = 1 }\n"),
        ),
        (made_of::<types::Variable>(), refusal("store = { x = 1 }\n")),
        (
            made_of::<types::Local>(),
            refusal(&with_field("on_store_failure = { x = 1 }")),
        ),
        (made_of::<types::Values>(), in_list("{ x = 1 }")),
    ] {
        assert_eq!(names_of(&schema["properties"]), expected_one_of(&refusal));
        let fields = schema["properties"].as_object().unwrap();
        for (name, field) in fields {
            let description = field["description"].as_str();
            assert!(description.is_some_and(|text| text.len() > 10), "{name}");
        }
    }
}

#[test]
fn the_schema_has_the_words_that_are_read_and_no_others() {
    let file = made_of::<types::File>();
    let policy = made_of::<types::Policy>();
    let in_file = |field: &str| refusal(&format!("store = \"memory\"\n{field} = \"?\"\n"));
    let in_policy = |field: &str| refusal(&with_field(&format!("{field} = \"?\"")));
    for (schema, refusal) in [
        (&file["properties"]["headers"], in_file("headers")),
        (&file["properties"]["rejection"], in_file("rejection")),
        (&policy["properties"]["algorithm"], in_policy("algorithm")),
        (&policy["properties"]["mode"], in_policy("mode")),
        (
            &policy["properties"]["on_missing_key"],
            in_policy("on_missing_key"),
        ),
    ] {
        assert_eq!(words_of(schema), expected_one_of(&refusal), "{schema}");
    }
}

/// The first list of words in a schema.
fn words_of(schema: &Value) -> BTreeSet<String> {
    let words = |value: &Value| Some(value.get("enum")?.as_array()?.clone());
    let kinds = schema["anyOf"].as_array();
    let among = kinds.and_then(|kinds| kinds.iter().find_map(words));
    let words = words(schema).or(among).unwrap();
    let words = words.iter().map(|word| word.as_str().unwrap().to_owned());
    words.collect()
}

#[test]
fn every_field_is_documented_where_users_look_for_it() {
    let source = Path::new(support::ROOT);
    let page = fs::read_to_string(source.join("docs/configuration.md")).unwrap();
    let file = names_of(&made_of::<types::File>()["properties"]);
    let policy = names_of(&made_of::<types::Policy>()["properties"]);
    let rows = policy.iter().map(|name| format!("\n| `{name}` |"));
    for text in file.iter().cloned().chain(rows) {
        assert!(
            page.contains(&text),
            "docs/configuration.md says nothing of {text}"
        );
    }
}

/// The words that are chosen from, wherever they stand.
fn words_in(schema: &Value) -> Vec<&str> {
    match schema {
        Value::Object(object) => {
            let chosen = object.get("enum").and_then(Value::as_array);
            let chosen = chosen.into_iter().flatten().filter_map(Value::as_str);
            chosen.chain(object.values().flat_map(words_in)).collect()
        }
        Value::Array(items) => items.iter().flat_map(words_in).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn every_word_is_documented_where_users_look_for_it() {
    let page = include_str!("../../../docs/configuration.md");
    for word in words_in(&made_of::<types::File>()) {
        assert!(
            page.contains(&format!("\"{word}\"")),
            "docs/configuration.md says nothing of {word}"
        );
    }
}

#[test]
fn the_whole_format_is_allowed() {
    assert!(allows(WHOLE));
    Config::from_toml(WHOLE).unwrap();
}

#[test]
fn every_way_to_name_a_store_is_allowed() {
    for store in [
        "memory",
        "redis://h",
        "rediss://h",
        "redis-cluster://h,i",
        "redis-sentinel://h/m",
        "redis+unix:///s",
        "unix:///s",
        "valkey://h",
        "valkeys://h",
        "valkey-cluster://h,i",
        "valkey-sentinel://h/m",
        "valkey+unix:///s",
    ] {
        let text = format!("store = \"{store}\"\npolicy = []\n");
        assert!(allows(&text), "{store}");
        let is_tls = store.contains("s://");
        assert!(text.parse::<Config>().is_ok() || (is_tls && cfg!(not(feature = "redis-tls"))));
    }
}

#[test]
fn schema_and_reader_refuse_the_wrong_structure() {
    let files = [
        "",
        "store = 5",
        "store = \"redsi://h\"",
        "store = { file = \"x\" }",
        "store = { env = \"\" }",
        "store = \"memory\"\ntls = true",
        "store = \"memory\"\ntls = { ca_file = [\"ca.pem\"] }",
        "store = \"memory\"\ntls = { danger_accept_invalid_certs = \"yes\" }",
        "store = \"memory\"\nprefix = 5",
        "store = \"memory\"\nsecret = \"hunter2\"",
        "store = \"memory\"\nheaders = []",
        "store = \"memory\"\nheaders = \"draft-7\"",
        "store = \"memory\"\ntimeout = 50",
        "store = \"memory\"\ntimeout = \"50\"",
        "store = \"memory\"\ntrusted_proxies = \"10.0.0.0/8\"",
        "store = \"memory\"\nclient_address = \"x-real-ip\"",
        "store = \"memory\"\ntrusted_hops = 65",
        "store = \"memory\"\nipv6_prefix = 24",
        "store = \"memory\"\nexempt = \"health\"",
        "store = \"memory\"\nskip_preflights = 1",
        "store = \"memory\"\ndeny = \"10.0.0.1\"",
        "store = \"memory\"\ndeny = [\"localhost\"]",
        "store = \"memory\"\nallow = [{ key = \"peer\", values = [\"::1\"] }]",
        "store = \"memory\"\n[[policies]]\nname = \"client\"",
    ];
    let files = files.map(|file| format!("policy = []\n{file}"));
    let policies_alone = [
        "store = \"memory\"",
        "store = \"memory\"\npolicy = 5",
        "store = \"memory\"\n[policy]\nname = \"client\"",
    ];
    let policies = [
        "name = \"\"",
        "algorithm = \"gcar\"",
        "limit = \"100\"",
        "limit = -1",
        "limit = []",
        "limit = [100]",
        "limit = [\"1/s\", \"2/min\", \"3/h\", \"4/day\", \"5/7day\"]",
        "burst = []",
        "burst = 0",
        "burst = 5_000_000_000_000_000",
        "burst = \"20\"",
        "delay = \"no\"",
        "slices = 1001",
        "lease = 10",
        "tiers = []",
        "tiers = [{ key = \"user\", values = [\"a\"] }]",
        "tiers = [{ key = \"peer\", values = [\"::1\"], limit = \"1/s\" }]",
        "key = \"ip\"",
        "key = []",
        "on = \"POST login\"",
        "on = []",
        "cost = 1.5",
        "cost = \"x-cost\"",
        "count_status = 99",
        "count_status = \"401\"",
        "count_grpc_status = 0",
        "count_grpc_status = [16, 17]",
        "mode = \"on\"",
        "max_wait = 2",
        "group = \"\"",
        "group = [\"client\"]",
        "penalty = \"1h\"",
        "penalty = { denials = 10, within = \"15min\" }",
        "penalty = { denials = 101, within = \"15min\", ban = \"1h\" }",
        "prefetch = \"1s\"",
        "prefetch = { share = 0 }",
        "prefetch = { share = 1.5 }",
        "prefetch = { max_age = 1 }",
        "on_missing_key = \"allow\"",
        "on_store_failure = true",
        "on_store_failure = \"local\"",
        "on_store_failure = { local = 0 }",
        "on_store_failure = { local = 1.5 }",
        "burts = 20",
    ];
    let policies = policies.map(with_field);
    let others = policies_alone.map(str::to_owned);
    for text in files.into_iter().chain(policies).chain(others) {
        assert!(!allows(&text), "{text}");
        assert!(Config::from_toml(&text).is_err(), "{text}");
    }
}
