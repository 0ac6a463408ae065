use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn hex(key: &Key) -> String {
    key.subject(None).to_string()
}

#[test]
fn subjects_of_the_same_text_and_different_kinds_are_different_keys() {
    let text = "10.0.0.1";
    let address: IpAddr = text.parse().unwrap();
    let kinds = [
        Key::from(text),
        Key::from(text.as_bytes()),
        Key::address(address),
        Key::unattributed(address),
        Key::header("x-client", text.as_bytes()),
        Key::header("x-user", text.as_bytes()),
        Key::user(text),
        Key::all([Key::from(text)]),
        Key::everybody(),
        Key::missing(),
    ];
    let distinct: HashSet<_> = kinds.iter().map(hex).collect();
    assert_eq!(distinct.len(), kinds.len());
}

#[test]
fn one_number_is_one_key_whatever_its_type() {
    assert_eq!(Key::from(7_u8), Key::from(7_i64));
    assert_eq!(Key::from(7_u8), Key::from(7_u128));
    assert_eq!(Key::from(7_u8), Key::from(7_usize));
    assert_eq!(Key::from(-7_i8), Key::from(-7_isize));
    assert_eq!(Key::from(i128::MAX), Key::from(i128::MAX.unsigned_abs()));
    assert_ne!(Key::from(u128::MAX), Key::from(-1));
}

#[test]
fn a_number_is_the_key_of_its_digits_under_every_kind() {
    let kinds: [fn(Key) -> Key; 4] = [
        |id| id,
        |id| Key::user(id),
        |id| Key::all([id]),
        |id| Key::all([Key::from("acme"), Key::user(id)]),
    ];
    for kind in kinds {
        for (number, digits) in [
            (Key::from(0), "0"),
            (Key::from(7_u64), "7"),
            (Key::from(i128::MAX), &i128::MAX.to_string()),
            (Key::from(u128::MAX), &u128::MAX.to_string()),
        ] {
            assert_eq!(kind(number), kind(digits.into()), "{digits}");
        }
    }
}

#[test]
fn only_the_digits_alone_are_the_number() {
    for text in ["+7", "-7", "07", "00", "-0", " 7", "7 ", "7.0", "٧", ""] {
        for number in [7, -7, 0] {
            assert_ne!(Key::from(text), Key::from(number), "{text:?}");
        }
    }
    assert_ne!(Key::from(b"7"), Key::from(7));
}

#[test]
fn a_user_of_a_user_is_the_same_key() {
    for id in [Key::from("alice"), Key::from(7), Key::from(-7)] {
        assert_eq!(Key::user(Key::user(&id)), Key::user(&id));
        assert_eq!(Key::user(&id).or_user(), Key::user(&id));
        assert_ne!(Key::user(&id), id);
    }
}

#[test]
fn text_numbers_and_bytes_become_users_and_other_keys_stay() {
    for id in [
        Key::from("alice"),
        Key::from(7),
        Key::from(-7),
        Key::from(b"\x07"),
    ] {
        assert_eq!(id.clone().or_user(), Key::user(id));
    }
    for key in [
        Key::everybody(),
        Key::missing(),
        Key::address([192, 0, 2, 1].into()),
        Key::unattributed([192, 0, 2, 1].into()),
        Key::header("x-user", b"alice"),
        Key::user("alice"),
        Key::all([Key::from("acme"), Key::from(7)]),
    ] {
        assert_eq!(key.clone().or_user(), key);
    }
}

#[test]
fn a_borrowed_and_an_owned_value_make_the_same_key() {
    let text = Key::from("alice");
    assert_eq!(Key::from("alice".to_owned()), text);
    assert_eq!(Key::from(Cow::from("alice")), text);
    let bytes = Key::from(b"alice".as_slice());
    for same in [
        Key::from(b"alice"),
        Key::from(*b"alice"),
        Key::from(b"alice".to_vec()),
    ] {
        assert_eq!(same, bytes);
    }
    for address in ["192.0.2.1", "2001:db8::7"] {
        let address: IpAddr = address.parse().unwrap();
        let same = match address {
            IpAddr::V4(v4) => Key::from(v4),
            IpAddr::V6(v6) => Key::from(v6),
        };
        assert_eq!(same, Key::address(address));
    }
}

#[test]
fn a_header_key_ignores_the_case_of_the_name_and_keeps_that_of_the_value() {
    assert_eq!(Key::header("X-User", b"bob"), Key::header("x-user", b"bob"));
    assert_ne!(Key::header("x-user", b"Bob"), Key::header("x-user", b"bob"));
}

/// Fleets mix versions of this crate during a roll-out, so these hashes must never change.
#[test]
fn hashes_are_stable_across_processes_and_versions() {
    let golden = [
        (Key::everybody(), "9d15372b1830735a0a2d05214669e327"),
        (Key::from("alice"), "163f98975bceebf5cf65f87d866b0917"),
        (Key::from(42_u64), "0a74a6af1ddeeaec8ef02f34c591b11e"),
        (Key::from(u128::MAX), "523258035a339f260953b03b532ffc77"),
        (Key::from(-7), "4cd1cdd6aa2cfc1b98fe68c6adc08421"),
        (Key::user("alice"), "5cb9efbb855c5666e173ee30aceded8d"),
        (Key::user(7), "e53169995f7391ef7ae16ad4df9a99b1"),
        (
            Key::address([192, 0, 2, 1].into()),
            "e9d86b9b2a81524e3f7bb62cec0b8920",
        ),
        (
            Key::header("x-api-key", b"k1"),
            "fa99e70985809ca12101cfae892688a0",
        ),
        (
            Key::all([Key::from("a"), Key::from("b:c")]),
            "7cb397372bc4223a5c405082319c81a1",
        ),
    ];
    let found: Vec<_> = golden.iter().map(|(key, _)| hex(key)).collect();
    let expected: Vec<_> = golden.iter().map(|(_, hash)| *hash).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_secret_changes_every_hash_and_the_same_secret_gives_the_same_one() {
    let key = Key::from("alice");
    let keyed = |secret: &[u8]| key.subject(Some(&Secret::new(secret)));
    assert_ne!(keyed(b"s1"), key.subject(None));
    assert_ne!(keyed(b"s1"), keyed(b"s2"));
    assert_eq!(keyed(b"s1"), keyed(b"s1"));
}

#[test]
fn debug_shows_nothing_of_the_subject() {
    let key = Key::from("alice@example.org");
    assert_eq!(format!("{key:?}"), "Key(..)");
    assert_eq!(format!("{:?}", key.subject(None)), "Subject(..)");
}

proptest! {
    #[test]
    fn composites_are_injective(a in prop::collection::vec(".{0,9}", 0..4),
                                b in prop::collection::vec(".{0,9}", 0..4)) {
        let all = |parts: &[String]| Key::all(parts.iter().map(Key::from));
        prop_assert_eq!(all(&a) == all(&b), a == b);
    }

    #[test]
    fn a_text_is_a_number_if_the_number_is_written_so(text in "[+-]?[0-9]{1,4}", number: i16) {
        let is_it = number >= 0 && text == number.to_string();
        prop_assert_eq!(Key::from(&text) == Key::from(number), is_it);
        let number: i16 = text.parse().unwrap();
        let is_it = number >= 0 && text == number.to_string();
        prop_assert_eq!(Key::from(&text) == Key::from(number), is_it);
    }
}

#[test]
fn a_subject_is_read_back_from_what_it_is_shown_as() {
    let subject = Subject::from(&Key::from("alice"));
    let shown = subject.to_string();
    assert_eq!(shown.parse(), Ok(subject));
    assert_eq!(shown.to_uppercase().parse(), Ok(subject));
    let zero = "0".repeat(32);
    assert_eq!(zero.parse::<Subject>().unwrap().to_string(), zero);
}

#[test]
fn only_a_hash_is_read_as_a_subject() {
    let sign = format!("+{}", "0".repeat(31));
    let long = "0".repeat(33);
    for text in ["", "alice", &sign, &long, "ééééééééééééééé€"] {
        let refusal = text.parse::<Subject>().unwrap_err().to_string();
        assert_eq!(
            refusal,
            format!("subject: got {text:?}, expected 32 hexadecimal digits")
        );
    }
}
