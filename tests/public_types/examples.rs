//! The examples say which features they need. In the repository the crate is its own development
//! dependency, with the feature `axum`. The package has no such dependency: an example that does not
//! say that it needs axum fails to build there, or answers each request with 500.

use std::fs;
use std::path::Path;

/// What only the feature `axum` has, or reads.
const OF_AXUM: [&str; 3] = [
    "Operator",
    "into_make_service_with_connect_info",
    "expose_decisions",
];

#[test]
fn an_example_that_needs_axum_says_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let mut needing = Vec::new();
    for entry in fs::read_dir(root.join("examples")).unwrap() {
        let file = entry.unwrap().path();
        let text = fs::read_to_string(&file).unwrap_or_default();
        if OF_AXUM.iter().any(|word| text.contains(word)) {
            needing.push(file.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    assert!(needing.len() >= 4, "found only {needing:?}");
    needing.retain(|example| !says_axum(&manifest, example));
    assert!(needing.is_empty(), "without required-features: {needing:?}");
}

fn says_axum(manifest: &str, example: &str) -> bool {
    let place = format!("[[example]]\nname = \"{example}\"\nrequired-features = [");
    let (_, behind) = manifest.split_once(&place).unwrap_or_default();
    let features = behind.split(']').next().unwrap_or_default();
    features.contains("\"axum\"")
}
