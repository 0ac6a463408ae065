//! The crate is built in floors, and a file imports only from its own floor and those below, so
//! that reading it top-down never leads back up.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use support::sources::{files_in, src};

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
        "sharded",
        "address",
        "observer",
        "random",
        "trace",
        "task",
        "guide",
    ],
    &["algorithm"],
    &["store"],
    &["request", "response", "policy", "limiter"],
    &["http"],
    &["tower"],
    &["config", "observers", "operator"],
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

#[test]
fn no_files_import_in_a_circle() {
    let src = src();
    let files = files_in(&src).into_iter().filter_map(|file| {
        let path = file.strip_prefix(&src).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        is_layered(path).then(|| (module_of(path), text))
    });
    assert_eq!(circles(&files.collect()), [[""; 0]; 0]);
}

#[test]
fn circles_are_found_between_defining_files() {
    let files = |texts: &[(&str, &str)]| {
        let file = |(name, text): &(&str, &str)| {
            let module = name.split('/').map(str::to_owned).collect();
            (module, (*text).to_owned())
        };
        texts.iter().map(file).collect()
    };
    let face = (
        "a",
        "mod b;\nmod c;\n\npub use self::b::{B, Other};\npub(super) use c::C;",
    );
    let circle = [
        face,
        ("a/b", "use super::C;\n"),
        ("a/c", "use crate::{\n    d,\n    a::B,\n};\n"),
        ("d", "use crate::a::C;\n"),
    ];
    assert_eq!(circles(&files(&circle)), [["a/b", "a/c", "d"]]);
    let none = [
        face,
        ("a/b", "use super::c::C;\n"),
        ("a/c", "    use super::B;\n"),
    ];
    assert_eq!(circles(&files(&none)), [[""; 0]; 0]);
}

type Files = BTreeMap<Vec<String>, String>;

/// The files that import from each other, those of each circle together.
fn circles(files: &Files) -> Vec<Vec<String>> {
    let imported = |module: &Vec<String>| -> BTreeSet<&Vec<String>> {
        let uses = uses(&files[module]).into_iter();
        // What a file passes on from below is only its face.
        let uses = uses.filter(|(is_public, _)| !is_public);
        let defined = uses.filter_map(|(_, path)| definer(files, module, &path, 0));
        defined.filter(|file| *file != module).collect()
    };
    let imports: BTreeMap<_, _> = files.keys().map(|file| (file, imported(file))).collect();
    let reached: BTreeMap<_, _> = files
        .keys()
        .map(|file| {
            let (mut reached, mut left) = (BTreeSet::new(), vec![file]);
            while let Some(next) = left.pop() {
                left.extend(imports[next].iter().filter(|file| reached.insert(**file)));
            }
            (file, reached)
        })
        .collect();
    let circle_of = |file: &Vec<String>| -> Vec<String> {
        let others = reached[file].iter();
        let members = others.filter(|other| reached[**other].contains(file));
        members.map(|member| member.join("/")).collect()
    };
    let circles: BTreeSet<_> = files.keys().map(circle_of).collect();
    circles
        .into_iter()
        .filter(|circle| !circle.is_empty())
        .collect()
}

/// The file that defines what this path names in a module, also if another file passes it on.
fn definer<'f>(
    files: &'f Files,
    module: &[String],
    path: &[String],
    passed_on: usize,
) -> Option<&'f Vec<String>> {
    let mut at = module.to_vec();
    let mut names = path;
    match names.first()?.as_str() {
        "crate" => (at, names) = (Vec::new(), &names[1..]),
        "self" => names = &names[1..],
        "super" => {
            while names.first().is_some_and(|name| name == "super") {
                at.pop();
                names = &names[1..];
            }
        }
        // Another crate, unless it is a module of this one.
        child => {
            let is_child = files.contains_key(&[module, &[child.to_owned()]].concat());
            is_child.then_some(())?;
        }
    }
    while let Some((name, others)) = names.split_first() {
        let below = [&*at, std::slice::from_ref(name)].concat();
        if !files.contains_key(&below) {
            break;
        }
        (at, names) = (below, others);
    }
    let (file, text) = files.get_key_value(&at)?;
    let Some(name) = names.first() else {
        return Some(file);
    };
    // A module that passes on what it imports itself would go on for ever.
    let passes_on = uses(text).into_iter().find(|(is_public, path)| {
        *is_public && passed_on < 8 && path.last().is_some_and(|last| last == name)
    });
    passes_on
        .and_then(|(_, path)| definer(files, &at, &path, passed_on + 1))
        .or(Some(file))
}

/// The imports at the top of a file, one path each, and whether it passes them on.
fn uses(text: &str) -> Vec<(bool, Vec<String>)> {
    let code = without_tests(text);
    let mut found = Vec::new();
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let begins = at;
        at += line.len();
        let keyword = if line.starts_with("pub") {
            " use "
        } else {
            "use "
        };
        let Some((visibility, _)) = line.split_once(keyword) else {
            continue;
        };
        let is_import = visibility.is_empty() || visibility.starts_with("pub");
        if !is_import || is_for_tests(&code[..begins]) {
            continue;
        }
        let tree = &code[begins + visibility.len() + keyword.len()..];
        let tree = tree.split(';').next().unwrap_or_default();
        let mut paths = Vec::new();
        paths_of(&mut Vec::new(), tree, &mut paths);
        found.extend(paths.into_iter().map(|path| (!visibility.is_empty(), path)));
    }
    found
}

/// Whether what follows this code is only for tests.
fn is_for_tests(code: &str) -> bool {
    code.lines()
        .next_back()
        .is_some_and(|line| line == "#[cfg(test)]")
}

/// Each path of a tree of imports.
fn paths_of(before: &mut Vec<String>, tree: &str, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let Some((path, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let names = path.split("::").map(|name| name.trim().to_owned());
        let all: Vec<_> = before.iter().cloned().chain(names).collect();
        paths.extend((!tree.is_empty()).then_some(all));
        return;
    };
    let names = path
        .split("::")
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let length = before.len();
    before.extend(names.map(str::to_owned));
    let group = &group[..group.rfind('}').unwrap_or(group.len())];
    let (mut depth, mut start) = (0, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                paths_of(before, &group[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    paths_of(before, &group[start..], paths);
    before.truncate(length);
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
