//! Reads a file at a path from outside, which may lead to a pipe without a writer, an endless device
//! or a file of any size.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// Far more than a configuration, a certificate or a secret needs.
const LARGEST: u64 = 16 * 1024 * 1024;

/// The content of a regular file, also through links. Never waits for another process.
///
/// # Errors
///
/// When it cannot be read, is no regular file, or has more than 16 MB.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    // Of the open file: the path may lead elsewhere by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(no_file(&metadata));
    }
    let mut bytes = Vec::new();
    // The file may grow, and the system does not know the length of some files.
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        let problem = "it has more than 16 MB";
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // Opening a pipe would wait for a writer; opening a terminal could make it the controlling
        // terminal of this process.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    options.open(path)
}

fn no_file(metadata: &Metadata) -> io::Error {
    match metadata.is_dir() {
        true => io::Error::new(ErrorKind::IsADirectory, "it is a directory, not a file"),
        false => io::Error::new(
            ErrorKind::InvalidInput,
            "it is a pipe, a socket or a device, not a file",
        ),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_a_regular_file_is_read_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "text").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("link", path("link-to-link")).unwrap();
        for name in ["file", "link", "link-to-link"] {
            assert_eq!(read(&path(name)).unwrap(), b"text", "{name}");
        }

        let made = Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        let _listening = UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/zero", path("endless")).unwrap();
        symlink("pipe", path("link-to-pipe")).unwrap();
        for name in ["pipe", "link-to-pipe", "socket", "endless", ".", "missing"] {
            assert!(read(&path(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        for (length, is_read) in [(LARGEST, true), (LARGEST + 1, false), (1 << 33, false)] {
            // Sparse: it takes no room.
            file.set_len(length).unwrap();
            let read = read(&path).map(|bytes| bytes.len() as u64);
            assert_eq!(read.ok(), is_read.then_some(length));
        }
    }
}
