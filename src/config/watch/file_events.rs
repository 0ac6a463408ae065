//! Notices when a file may have changed. A thread receives the operating system's events, and also
//! looks at intervals in case there are none.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{fs, thread};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::one_line::OneLine;
use crate::trace;

/// A file is read once it has not changed for this long, since its writer may not be done.
const QUIET: Duration = Duration::from_millis(50);
/// It is read after this long at the latest, however busy its directory is.
const LONGEST: Duration = Duration::from_millis(500);
/// It is read this often in any case: network file systems report no changes, and no file system
/// does once the system's watches are used up.
const IN_ANY_CASE: Duration = Duration::from_secs(10);

/// Stops watching when it is dropped.
pub(super) struct Watching(Sender<Signal>);

enum Signal {
    Changed,
    Stop,
}

impl Watching {
    /// Calls `look` at once, and then whenever the file may have changed, on its own thread.
    pub(super) fn start(
        path: &Path,
        mut look: impl FnMut() + Send + 'static,
    ) -> Result<Self, io::Error> {
        let (sender, signals) = mpsc::channel();
        let mut places = Places::new(path, sender.clone());
        thread::Builder::new()
            .name("limits-reload".to_owned())
            .spawn(move || {
                loop {
                    // In this order, so that no change falls between the two.
                    places.watch();
                    look();
                    if !wait(&signals) {
                        return;
                    }
                }
            })?;
        Ok(Self(sender))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Without a receiver the thread has stopped already.
        let _ = self.0.send(Signal::Stop);
    }
}

/// Waits until it is time to look. Returns `false` when it is time to stop.
fn wait(signals: &Receiver<Signal>) -> bool {
    match signals.recv_timeout(IN_ANY_CASE) {
        Ok(Signal::Changed) => {}
        Err(RecvTimeoutError::Timeout) => return true,
        Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
    }
    let latest = Instant::now() + LONGEST;
    loop {
        let left = latest.saturating_duration_since(Instant::now());
        match signals.recv_timeout(QUIET.min(left)) {
            Ok(Signal::Changed) if !left.is_zero() => {}
            Ok(Signal::Changed) | Err(RecvTimeoutError::Timeout) => return true,
            Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// The directories in which a change of the file can be seen.
struct Places {
    path: PathBuf,
    watcher: Option<RecommendedWatcher>,
    watched: Vec<PathBuf>,
    is_warned: bool,
}

impl Places {
    fn new(path: &Path, changed: Sender<Signal>) -> Self {
        let watcher = notify::recommended_watcher(move |event| {
            if may_be_a_change(&event) {
                let _ = changed.send(Signal::Changed);
            }
        });
        if let Err(error) = &watcher {
            warn(path, error);
        }
        Self {
            path: path.to_owned(),
            is_warned: watcher.is_err(),
            watcher: watcher.ok(),
            watched: Vec::new(),
        }
    }

    /// Watches directories, not the file: the file may be replaced by another, or by a link. All of
    /// them anew each time, since links may have changed, which is how Kubernetes updates a file.
    fn watch(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        for directory in self.watched.drain(..) {
            let _ = watcher.unwatch(&directory);
        }
        for directory in directories_to(&self.path) {
            if self.watched.contains(&directory) {
                continue;
            }
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => self.watched.push(directory),
                // If it has just gone, that is a change, too.
                Err(error) if self.is_warned || is_of_nothing(&error) => {}
                Err(error) => {
                    warn(&self.path, &error);
                    self.is_warned = true;
                }
            }
        }
    }
}

/// Warns that changes are noticed late.
fn warn(path: &Path, error: &notify::Error) {
    trace::warn!(
        error = %OneLine(error),
        "rate limiting: the system does not report changes of {}, so it is read every ten \
         seconds",
        OneLine(path.display())
    );
}

/// Whether the directory is not there.
fn is_of_nothing(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => error.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

/// Reading a file causes an event too: reacting to each would never end.
fn may_be_a_change(event: &notify::Result<Event>) -> bool {
    let written = AccessKind::Close(AccessMode::Write);
    !matches!(event, Ok(Event { kind: EventKind::Access(kind), .. }) if *kind != written)
}

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

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, EventAttributes, ModifyKind, RemoveKind};

    use super::*;

    /// A directory whose name is too long stands for one that the system refuses to watch.
    #[cfg(target_os = "linux")]
    #[test]
    fn only_a_directory_that_exists_and_is_not_watched_is_warned_of() {
        let directory = tempfile::tempdir().unwrap();
        let too_long = "x".repeat(300);
        for (name, is_warned) in [("", false), ("missing", false), (&too_long, true)] {
            let path = directory.path().join(name).join("limits.toml");
            let mut places = Places::new(&path, mpsc::channel().0);
            places.watch();
            assert_eq!(places.is_warned, is_warned, "{name}");
        }
        let gone = directory.path().join("gone");
        let mut watcher = notify::recommended_watcher(|_| {}).unwrap();
        let error = watcher.watch(&gone, RecursiveMode::NonRecursive);
        assert!(is_of_nothing(&error.unwrap_err()));
    }

    /// Otherwise each directory in which a file ever was would be watched for ever.
    #[cfg(unix)]
    #[test]
    fn a_directory_is_watched_for_as_long_as_the_way_leads_there() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let [old, new] = ["old", "new"].map(|name| root.join(name));
        let path = root.join("current/limits.toml");
        let mut places = Places::new(&path, mpsc::channel().0);
        for target in [&old, &new] {
            std::fs::create_dir(target).unwrap();
            let _ = std::fs::remove_file(root.join("current"));
            std::os::unix::fs::symlink(target, root.join("current")).unwrap();
            places.watch();
        }
        let watcher = places.watcher.as_mut().unwrap();
        let is_watched = [&old, &new].map(|target| watcher.unwatch(target).is_ok());
        assert_eq!(is_watched, [false, true]);
    }

    #[test]
    fn reading_a_file_is_no_change_of_it() {
        for (kind, is_change) in [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
            (
                EventKind::Access(AccessKind::Open(AccessMode::Write)),
                false,
            ),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Read)),
                false,
            ),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Write)),
                true,
            ),
            (EventKind::Create(CreateKind::File), true),
            (EventKind::Modify(ModifyKind::Any), true),
            (EventKind::Remove(RemoveKind::File), true),
            (EventKind::Any, true),
            (EventKind::Other, true),
        ] {
            let event = Event {
                kind,
                paths: Vec::new(),
                attrs: EventAttributes::default(),
            };
            assert_eq!(may_be_a_change(&Ok(event)), is_change, "{kind:?}");
        }
        // Events may have been lost.
        assert!(may_be_a_change(&Err(notify::Error::generic("overflow"))));
    }
}

#[cfg(all(test, unix))]
mod tests_of_links {
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
