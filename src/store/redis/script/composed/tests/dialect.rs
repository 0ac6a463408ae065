//! What script interpreters have in common: Redis and Valkey have Lua 5.1, other servers 5.4.

use super::*;

const LIBRARIES: [&str; 12] = [
    "bit",
    "bit32",
    "cjson",
    "cmsgpack",
    "coroutine",
    "debug",
    "math",
    "os",
    "redis",
    "string",
    "struct",
    "table",
];

/// The library members that scripts use. No others are known to be in all interpreters; for
/// `table.unpack` see below.
const MEMBERS: [&str; 18] = [
    "math.ceil",
    "math.floor",
    "math.max",
    "math.min",
    "redis.call",
    "redis.pcall",
    "string.byte",
    "string.find",
    "string.format",
    "string.gmatch",
    "string.lower",
    "string.match",
    "string.rep",
    "string.sub",
    "struct.pack",
    "struct.unpack",
    "table.concat",
    "table.unpack",
];

/// Names and keywords that one of them has and the other does not.
const NAMES: [&str; 14] = [
    "_ENV",
    "collectgarbage",
    "gcinfo",
    "getfenv",
    "goto",
    "load",
    "loadstring",
    "module",
    "newproxy",
    "rawlen",
    "setfenv",
    "utf8",
    "warn",
    "xpcall",
];

/// The same for operators, labels, attributes and comments, except `~=`.
const SIGNS: [&str; 11] = [
    "//", "<<", ">>", "&", "|", "~", "::", "<const>", "<close>", "[[", "'",
];

/// How to get the function that is `unpack` in 5.1 and a member of `table` in 5.4. The member is
/// tried first: in scripts, an undeclared name is an error, but a missing member is not.
const UNPACK: &str = "table.unpack or unpack";

/// A text without comments and quoted strings.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let (mut is_quoted, mut is_escaped) = (false, false);
        let mut own = String::new();
        for sign in line.chars() {
            match sign {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => is_quoted = !is_quoted,
                _ if is_quoted => {}
                sign => own.push(sign),
            }
        }
        code.push_str(own.split("--").next().unwrap());
        code.push('\n');
    }
    code
}

/// The names in some code, with what they are members of.
fn names_in(code: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == '.';
    let names = code.split(move |sign| !is_of_name(sign));
    names.filter(|name| !name.is_empty())
}

#[test]
fn scripts_use_what_lua_5_1_and_5_4_have_in_common() {
    for text in every_text() {
        let code = code_of(text).replace("~=", "");
        for name in names_in(&code) {
            let library = name.split('.').next().unwrap();
            let is_member = name != library && LIBRARIES.contains(&library);
            assert!(!is_member || MEMBERS.contains(&name), "{name}");
            assert!(is_member || !NAMES.contains(&name), "{name}");
        }
        for sign in SIGNS {
            assert!(!code.contains(sign), "{sign} in:\n{code}");
        }
        // The first line of another way to run scripts, which older servers do not know.
        assert!(!text.contains("#!"));
    }
}

#[test]
fn scripts_look_for_unpack_in_both_places() {
    let all: Vec<_> = (0..SOURCES.len()).collect();
    for text in TEXTS.into_iter().chain([text_of(&all)]) {
        let code = code_of(text);
        let rest = code.replace(UNPACK, "");
        let is_used = names_in(&rest).any(|name| name == "unpack");
        assert!(!is_used || code.contains(UNPACK), "{code}");
    }
}

/// With `%d`, in less than half the time of `%.0f`; 5.4 refuses numbers that are not whole.
#[test]
fn scripts_write_whole_numbers_alone() {
    let mut written = 0;
    for text in every_text() {
        for rest in text.split("string.format(\"").skip(1) {
            let form = rest.split('"').next().unwrap();
            let numbers = form.split('%').skip(1);
            for number in numbers {
                assert!(number.starts_with('d'), "{form}");
                written += 1;
            }
        }
    }
    assert!(written >= 5, "found only {written}");
}
