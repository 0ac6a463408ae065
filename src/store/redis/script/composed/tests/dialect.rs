//! What interpreters of scripts have in common: that of Redis and Valkey is Lua 5.1, that of others 5.4.

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

/// What is used of the libraries. Nothing else is known to be in all of them; `table.unpack` is not, see below.
const MEMBERS: [&str; 21] = [
    "cmsgpack.pack",
    "cmsgpack.unpack",
    "cmsgpack.unpack_one",
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

/// Names and words that one of them has and the other has not.
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

/// Operators, labels, attributes and comments, likewise; but for `~=`.
const SIGNS: [&str; 11] = [
    "//", "<<", ">>", "&", "|", "~", "::", "<const>", "<close>", "[[", "'",
];

/// How to come by what 5.1 has as `unpack` and 5.4 as a member of `table`. The latter is looked for first: to look
/// for a name that nobody has declared is an error in scripts, and for a member that is not there none.
const UNPACK: &str = "table.unpack or unpack";

/// A text without what stands in comments and between quotes.
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
        // The first line of what is run in another way, which older servers do not know.
        assert!(!text.contains("#!"));
    }
}

#[test]
fn scripts_look_for_unpack_in_both_places() {
    let mut found = 0;
    for code in every_text().map(code_of) {
        found += code.matches(UNPACK).count();
        // Its own, or none.
        let has_its_own = |code: &str| {
            let mut lines = code.lines();
            lines.any(|line| line.contains(UNPACK) && line.contains("unpack = "))
        };
        let rest = code.replace(UNPACK, "");
        let bare = names_in(&rest).filter(|name| *name == "unpack").count();
        assert!(bare == 0 || has_its_own(&code), "{code}");
    }
    assert!(found >= 4, "found only {found}");
}

/// As `%d` writes them, in less than half the time of `%.0f`, and 5.4 refuses what is none.
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
