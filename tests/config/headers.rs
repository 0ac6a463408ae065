//! `headers`: the families of quota headers.

use http::Request;
use tower_throttle::QuotaHeaders;

use super::{answers, layer, read, refusal, with_field};

fn file(headers: &str) -> String {
    format!("store = \"memory\"\nheaders = {headers}\npolicy = []\n")
}

#[test]
fn a_word_and_a_list_of_words_choose_the_families() {
    let [draft_11, draft_6, delta, epoch] = [
        QuotaHeaders::DRAFT_11,
        QuotaHeaders::DRAFT_6,
        QuotaHeaders::X_RATELIMIT_DELTA,
        QuotaHeaders::X_RATELIMIT_EPOCH,
    ];
    for (headers, chosen) in [
        (r#""draft-11""#, draft_11),
        (r#""draft-6""#, draft_6),
        (r#""x-ratelimit-delta""#, delta),
        (r#""x-ratelimit-epoch""#, epoch),
        (r#""none""#, QuotaHeaders::NONE),
        (r#"["none"]"#, QuotaHeaders::NONE),
        (r#"["x-ratelimit-epoch"]"#, epoch),
        (r#"["draft-11", "x-ratelimit-delta"]"#, draft_11.and(delta)),
        (r#"["x-ratelimit-epoch", "draft-6"]"#, draft_6.and(epoch)),
    ] {
        let config = read(&file(headers));
        assert_eq!(config.headers(), chosen, "{headers}");
    }
    let config = read("store = \"memory\"\npolicy = []\n");
    assert_eq!(config.headers(), draft_11);
}

#[test]
fn denials_alone_are_draft_11_and_in_a_list_all_its_others() {
    let draft_11 = QuotaHeaders::DRAFT_11.on_denials();
    let delta = QuotaHeaders::X_RATELIMIT_DELTA.on_denials();
    for (headers, chosen) in [
        (r#""denials""#, draft_11),
        (r#"["denials"]"#, draft_11),
        (r#"["denials", "x-ratelimit-delta"]"#, delta),
        (r#"["x-ratelimit-delta", "denials"]"#, delta),
        (
            r#"["draft-11", "denials", "x-ratelimit-delta"]"#,
            draft_11.and(delta),
        ),
    ] {
        let config = read(&file(headers));
        assert_eq!(config.headers(), chosen, "{headers}");
    }
}

#[tokio::test]
async fn the_layer_of_a_file_sends_the_headers_that_the_file_names() {
    let headers = "headers = [\"x-ratelimit-delta\", \"draft-6\"]";
    let file = with_field("key = \"everybody\"");
    let layer = layer(&format!("{headers}\n{file}"));
    let response = answers(&layer, Request::new(())).await;
    assert_eq!(response.headers()["x-ratelimit-remaining"], "99");
    assert_eq!(response.headers()["ratelimit-remaining"], "99");
    assert!(!response.headers().contains_key("ratelimit"));
}

#[test]
fn words_that_make_no_sense_are_refused_in_their_line() {
    let words = "one of \"draft-11\", \"draft-6\", \"x-ratelimit-delta\", \"x-ratelimit-epoch\", \
                 \"denials\", \"none\"";
    let same =
        "\"x-ratelimit-delta\" and \"x-ratelimit-epoch\" are the same headers, leave one out";
    let alone = "\"none\" excludes the others, leave it or them out";
    for (headers, line, refused) in [
        (
            r#""draft-7""#,
            2,
            format!("got \"draft-7\", expected {words}"),
        ),
        (
            r#""x-ratelimit""#,
            2,
            format!("got \"x-ratelimit\", expected {words}"),
        ),
        ("true", 2, format!("got true, expected {words}")),
        (
            "[\n\"draft-11\",\n[\"draft-6\"]]",
            4,
            format!("got a list, expected {words}"),
        ),
        (
            "[]",
            2,
            "the list is empty, so it names none; write \"none\" for no quota headers".to_owned(),
        ),
        (
            "[\n\"draft-6\",\n\"denials\",\n\"draft-6\"]",
            5,
            "\"draft-6\" is named twice, leave one out".to_owned(),
        ),
        (
            "[\n\"denials\",\n\"denials\"]",
            4,
            "\"denials\" is named twice, leave one out".to_owned(),
        ),
        (
            "[\n\"x-ratelimit-delta\",\n\"draft-11\",\n\"x-ratelimit-epoch\"]",
            5,
            same.to_owned(),
        ),
        (
            "[\n\"x-ratelimit-epoch\",\n\"x-ratelimit-delta\"]",
            4,
            same.to_owned(),
        ),
        ("[\n\"none\",\n\"draft-11\"]", 4, alone.to_owned()),
        ("[\n\"denials\",\n\"none\"]", 4, alone.to_owned()),
    ] {
        assert_eq!(
            refusal(&file(headers)),
            format!("line {line}: headers: {refused}")
        );
    }
}
