//! The crate is built in floors, and a file imports only from its own floor and those below, so
//! that reading it top-down never leads back up.

use std::fs;
use std::path::Path;

use self::sources::{files_in, src};

#[path = "support/sources.rs"]
mod sources;

/// The modules of each floor, the lowest first.
const FLOORS: [&[&str]; 7] = [
    &[
        "time",
        "limit",
        "key",
        "labels",
        "mode",
        "notifications",
        "one_line",
        "decision",
        "error",
        "per_thread",
        "ranges",
        "random",
        "trace",
        "caught",
    ],
    &["algorithm"],
    &["store", "observe"],
    &["request", "response", "policy", "access", "limiter"],
    &["http"],
    &["tower"],
    &[
        "config",
        "extractor",
        "by_policy",
        "metrics",
        "operator",
        "top_denied",
    ],
];

#[test]
fn no_file_imports_from_a_higher_floor() {
    let src = src();
    let mut files = files_in(&src);
    files.retain(|file| is_layered(file.strip_prefix(&src).unwrap()));
    assert!(files.len() > 20, "found only {files:?}");
    let wrong = files.iter().flat_map(|file| {
        let module = module_of(file.strip_prefix(&src).unwrap());
        let text = fs::read_to_string(file).unwrap();
        let place = file.display().to_string();
        faults(&module, &text)
            .into_iter()
            .map(move |(line, fault)| format!("{place}:{line}: {fault}"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn an_upward_import_is_found_however_it_is_written() {
    let policy = ["policy"].map(str::to_owned);
    for text in [
        "\nuse crate::http::Route;\n",
        "\nuse crate::{error, http::Route};\n",
        "\nuse crate::{error::{A, B}, config};\n",
        "\nfn f() -> crate::tower::Layer {\n",
        "\nuse super::http::Route;\n",
        "\npub(super) use super::{limit, http};\n",
    ] {
        let faults = faults(&policy, text);
        assert_eq!(faults.len(), 1, "{text:?} gave {faults:?}");
        assert_eq!(faults[0].0, 2, "{text:?}");
    }
    let nested = ["store", "redis"].map(str::to_owned);
    assert_eq!(
        faults(&nested, "use super::super::policy::Policy;").len(),
        1
    );
}

#[test]
fn lower_floors_and_comments_may_be_named() {
    let policy = ["policy"].map(str::to_owned);
    for text in [
        "use crate::{error, limit::Limit, store::{Store, Check}};",
        "/// Read by a [`Route`](crate::http::Route).\n",
        "    // as crate::http does\n",
        "#[cfg(test)]\nmod tests {\n    use crate::http::Route;\n}\n",
    ] {
        assert_eq!(faults(&policy, text), [], "{text:?}");
    }
    let nested = ["store", "redis"].map(str::to_owned);
    assert_eq!(faults(&nested, "use super::http;"), []);
}

#[test]
fn a_module_without_a_floor_is_a_fault() {
    assert_eq!(
        faults(&["policy".to_owned()], "use crate::cellar::Wine;").len(),
        1
    );
    assert_eq!(
        faults(&["cellar".to_owned()], "use crate::time::Micros;").len(),
        1
    );
}

/// Tests may import from anywhere, and the crate's root names everything.
fn is_layered(path: &Path) -> bool {
    let mut parts = path.iter().map(|part| part.to_str().unwrap());
    !parts.any(|part| matches!(part, "tests" | "tests.rs" | "lib.rs"))
}

/// `store/redis/server.rs` is the module `store`, `redis`, `server`.
fn module_of(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let parts = path.iter().map(|part| part.to_str().unwrap().to_owned());
    parts.filter(|part| part != "mod").collect()
}

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// The lines that import from above, and why.
fn faults(module: &[String], text: &str) -> Vec<(usize, String)> {
    let code = without_tests(text);
    let Some(floor) = floor_of(&module[0]) else {
        return vec![(
            1,
            format!("{} has no floor, give it one in this test", module[0]),
        )];
    };
    let root = "super::".repeat(module.len());
    let roots = ["crate::", &root];
    let imports = roots.iter().flat_map(|root| imports(&code, root));
    let fault = |(line, import): (usize, String)| match floor_of(&import) {
        Some(above) if above > floor => Some((
            line,
            format!(
                "{} (floor {floor}) imports {import} (floor {above})",
                module[0]
            ),
        )),
        Some(_) => None,
        None => Some((
            line,
            format!("{import} has no floor, import from its module"),
        )),
    };
    imports.filter_map(fault).collect()
}

/// The code without comments and without what follows `#[cfg(test)] mod`. Line numbers stay.
fn without_tests(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    let code = text[..end]
        .lines()
        .map(|line| match line.trim_start().starts_with("//") {
            true => "",
            false => line,
        });
    code.collect::<Vec<_>>().join("\n")
}

/// The modules named directly behind a root, each with its line.
fn imports(code: &str, root: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(root) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':') {
            continue;
        }
        let line = 1 + code[..at].matches('\n').count();
        let names = names(&code[at + root.len()..]);
        found.extend(names.into_iter().map(|name| (line, name)));
    }
    found
}

/// The first segment of a path, or of each path of a group.
fn names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![identifier(path)];
    };
    let mut depth = 0;
    let mut names = vec![identifier(group)];
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(identifier(&group[at + 1..])),
            _ => {}
        }
    }
    // After a trailing comma there is no name.
    names.retain(|name| !name.is_empty());
    names
}

fn identifier(text: &str) -> String {
    let in_name = |character: &char| character.is_alphanumeric() || *character == '_';
    text.trim_start().chars().take_while(in_name).collect()
}
