//! The path to a file, through links: the directories in which a change of it can be seen.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// As many as Linux follows. Links can lead in a circle.
const MOST_LINKS: usize = 40;

/// The directories of the links on the path, and that of the file or of the first part of the path
/// that is missing.
pub(super) fn directories_to(path: &Path) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    let (mut here, mut ahead) = (PathBuf::from("."), path.to_owned());
    while directories.len() <= MOST_LINKS {
        let mut parts = ahead.components();
        let Some(part) = parts.next() else {
            break;
        };
        let (there, beyond) = (here.join(part), parts.as_path());
        match fs::read_link(&there) {
            Ok(target) => {
                directories.push(here.clone());
                ahead = target.join(beyond);
            }
            Err(error) if beyond == Path::new("") || error.kind() == ErrorKind::NotFound => {
                directories.push(here);
                break;
            }
            Err(_is_no_link) => {
                ahead = beyond.to_owned();
                here = there;
            }
        }
    }
    directories
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// An empty directory, by a path without links.
    fn empty() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        (directory, path)
    }

    #[test]
    fn each_link_on_the_way_is_in_a_directory_of_its_own() {
        let (_kept, root) = empty();
        for directory in ["a", "b", "c", "releases/42"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("c/limits.toml"), "").unwrap();
        symlink("../b/mid", root.join("a/limits.toml")).unwrap();
        symlink(root.join("c/limits.toml"), root.join("b/mid")).unwrap();
        fs::write(root.join("releases/42/limits.toml"), "").unwrap();
        symlink("releases/42", root.join("current")).unwrap();

        for (path, expected) in [
            ("c/limits.toml", &["c"][..]),
            ("c/missing.toml", &["c"]),
            ("missing/limits.toml", &[""]),
            ("a/limits.toml", &["a", "a/../b", "c"]),
            ("current/limits.toml", &["", "releases/42"]),
            ("current/missing.toml", &["", "releases/42"]),
        ] {
            let expected: Vec<_> = expected.iter().map(|name| root.join(name)).collect();
            assert_eq!(directories_to(&root.join(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_path_that_begins_nowhere_begins_here() {
        assert_eq!(directories_to("Cargo.toml".as_ref()), [Path::new(".")]);
        assert_eq!(directories_to("src/lib.rs".as_ref()), [Path::new("./src")]);
    }

    #[test]
    fn links_in_a_circle_come_to_an_end() {
        let (_kept, root) = empty();
        symlink("there", root.join("here")).unwrap();
        symlink("here", root.join("there")).unwrap();
        assert!(
            directories_to(&root.join("here"))
                .iter()
                .all(|directory| *directory == root)
        );
    }
}
