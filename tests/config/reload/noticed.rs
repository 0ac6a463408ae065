//! Every change of a file is noticed, however it is made, and nothing else is.

use std::fs;
use std::io;
#[cfg(unix)]
use std::{os::unix::fs::symlink, path::Path, process::Command, time::Duration};

#[cfg(unix)]
use tokio::time::timeout;
use tower_throttle::{ConfigFile, OpenError};

#[cfg(unix)]
use super::file::open;
use super::file::{Limits, limit};
#[cfg(unix)]
use support::web::GENEROUS;

#[tokio::test]
async fn a_file_that_is_written_in_place_is_reloaded() {
    let file = Limits::new(&limit("3/day"));
    let mut limits = file.open().await;
    file.write(&limit("5/day"));
    // It may have been found empty between the two steps of writing it.
    while limits.outcome().await.is_err() {}
    assert_eq!(limits.remaining("client").await, 5);
}

#[tokio::test]
async fn a_file_that_is_replaced_is_reloaded_each_time() {
    let file = Limits::new(&limit("1/day"));
    let mut limits = file.open().await;
    for number in 2..6 {
        file.replace(&limit(&format!("{number}/day")));
        limits.reloaded().await;
        assert_eq!(limits.remaining("client").await, number);
    }
}

/// As Kubernetes updates a mounted `ConfigMap`: the file is a link through a link to a directory,
/// and only the latter link is replaced.
#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_elsewhere_is_reloaded() {
    let file = Limits::new("");
    let directory = file.directory();
    fs::remove_file(file.path()).unwrap();
    let version = |number: u64| {
        let version = directory.join(format!("..version_{number}"));
        fs::create_dir(&version).unwrap();
        let text = limit(&format!("{number}/day"));
        fs::write(version.join("limits.toml"), text).unwrap();
        let link = directory.join("..data_tmp");
        symlink(version.file_name().unwrap(), &link).unwrap();
        fs::rename(link, directory.join("..data")).unwrap();
    };
    version(1);
    symlink("..data/limits.toml", file.path()).unwrap();

    let mut limits = file.open().await;
    for number in 2..5 {
        version(number);
        fs::remove_dir_all(directory.join(format!("..version_{}", number - 1))).unwrap();
        limits.reloaded().await;
        assert_eq!(limits.remaining("client").await, number);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_behind_a_link_is_reloaded_where_it_is() {
    let there = Limits::new(&limit("3/day"));
    let here = Limits::new("");
    fs::remove_file(here.path()).unwrap();
    symlink(there.path(), here.path()).unwrap();
    let mut limits = here.open().await;
    for number in 4..7 {
        there.replace(&limit(&format!("{number}/day")));
        limits.reloaded().await;
        assert_eq!(limits.remaining("client").await, number);
    }
}

/// A release that is named by a link, and a link between the watched path and the file.
#[cfg(unix)]
#[tokio::test]
async fn a_changed_link_is_noticed_before_the_regular_look() {
    for (link, target, path) in [
        ("current", "releases/{}", "current/limits.toml"),
        ("middle/link", "../releases/{}/limits.toml", "limits.toml"),
    ] {
        let file = Limits::new("");
        let directory = file.directory();
        fs::remove_file(file.path()).unwrap();
        fs::create_dir(directory.join("middle")).unwrap();
        symlink("middle/link", file.path()).unwrap();
        let lead_to = |number: u64| {
            let release = directory.join(format!("releases/{number}"));
            fs::create_dir_all(&release).unwrap();
            let text = limit(&format!("{number}/day"));
            fs::write(release.join("limits.toml"), text).unwrap();
            let other = directory.join(format!("{link}.new"));
            symlink(target.replace("{}", &number.to_string()), &other).unwrap();
            fs::rename(other, directory.join(link)).unwrap();
        };
        lead_to(1);

        let mut limits = open(directory.join(path)).await;
        for number in 2..5 {
            lead_to(number);
            let reloaded = tokio::time::timeout(Duration::from_secs(5), limits.reloaded()).await;
            reloaded.unwrap_or_else(|_| panic!("{link} leads to {number}"));
            assert_eq!(limits.remaining("client").await, number);
        }
    }
}

/// As on a network file system. Here the file is written by another name, in a directory that is
/// not watched.
#[tokio::test]
async fn a_change_that_the_system_does_not_report_is_found_by_looking() {
    let file = Limits::new(&limit("1/day"));
    let elsewhere = file.directory().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let other_name = elsewhere.join("limits.toml");
    fs::hard_link(file.path(), &other_name).unwrap();
    let mut limits = file.open().await;
    // The first one is reported, or found before anything is awaited.
    for (path, number) in [(file.path(), 2), (other_name, 3)] {
        fs::write(path, limit(&format!("{number}/day"))).unwrap();
        while limits.outcome().await.is_err() {}
        assert_eq!(limits.remaining("client").await, number);
    }
}

#[tokio::test]
async fn a_missing_file_leaves_its_limits_in_force() {
    let file = Limits::new(&limit("3/day"));
    let mut limits = file.open().await;
    fs::remove_file(file.path()).unwrap();
    let refused = limits.outcome().await.unwrap_err();
    assert_eq!(
        refused,
        limits.config.last_error().unwrap().to_string(),
        "the same is kept"
    );
    let start = format!("{}: the file cannot be read: ", file.path().display());
    assert!(refused.starts_with(&start), "{refused}");
    assert!(limits.is_allowed("client").await);
    assert_eq!(limits.remaining("client").await, 2);

    file.replace(&limit("3/day"));
    limits.reloaded().await;
    assert!(limits.config.last_error().is_none());
    assert_eq!(limits.remaining("client").await, 2);
}

#[tokio::test]
async fn every_new_reason_why_a_file_is_refused_is_reported() {
    let file = Limits::new(&limit("3/day"));
    let mut limits = file.open().await;
    fs::remove_file(file.path()).unwrap();
    limits.outcome().await.unwrap_err();
    for (bytes, line) in [(&b"\xff"[..], 1), (b"\n\xff", 2)] {
        file.replace(bytes);
        let refused = limits.outcome().await.unwrap_err();
        let end = format!(": line {line}: the text is not UTF-8, save the file as UTF-8");
        assert!(refused.ends_with(&end), "{refused}");
    }

    fs::remove_file(file.path()).unwrap();
    let mut reasons = Vec::new();
    for _ in 0..2 {
        limits.outcome().await.unwrap_err();
        let error = limits.config.last_error().unwrap();
        reasons.push(error.io_error().unwrap().kind());
        // Something is there again, but it is no file.
        let _ = fs::create_dir(file.path());
    }
    assert_eq!(reasons[0], io::ErrorKind::NotFound);
    assert_ne!(reasons[1], io::ErrorKind::NotFound);
}

#[tokio::test]
async fn an_unchanged_file_is_not_reported() {
    let file = Limits::new(&limit("3/day"));
    let mut limits = file.open().await;
    fs::write(file.directory().join("other.toml"), "store = 5").unwrap();
    file.replace(&limit("3/day"));
    fs::remove_file(file.directory().join("other.toml")).unwrap();
    file.replace(&limit("4/day"));
    limits.reloaded().await;
    assert_eq!(limits.remaining("client").await, 4);
    // All earlier changes have been looked at by now.
    assert!(limits.outcomes.try_recv().is_err());
}

/// Watching begins on its own thread, perhaps later than this.
#[tokio::test]
async fn a_change_right_after_the_file_was_read_is_noticed() {
    let file = Limits::new(&limit("3/day"));
    let mut limits = file.open().await;
    file.replace(&limit("4/day"));
    limits.reloaded().await;
    assert_eq!(limits.remaining("client").await, 4);
}

#[tokio::test]
async fn a_file_that_is_wrong_from_the_start_is_not_opened() {
    let file = Limits::new("store = 5\n");
    let refused = ConfigFile::new(file.path()).open().await.unwrap_err();
    let text = format!("{}: line 1: store: got 5", file.path().display());
    assert!(refused.to_string().starts_with(&text), "{refused}");
    assert!(matches!(refused, OpenError::File(_)), "{refused:?}");

    let port = support::redis::free_port();
    let store = format!("store = \"redis://:hunter2@127.0.0.1:{port}\"\npolicy = []\n");
    let file = Limits::new(&store);
    let refused = ConfigFile::new(file.path()).open().await.unwrap_err();
    assert!(matches!(refused, OpenError::Store(_)), "{refused:?}");
    assert!(!format!("{refused:?} {refused}").contains("hunter2"));
    let limits = ConfigFile::new(file.path()).open_lazy().unwrap();
    assert_eq!(limits.path(), file.path());
}

/// A pipe that nobody writes to, and a file without an end.
#[cfg(unix)]
#[tokio::test]
async fn what_is_no_regular_file_is_refused_and_the_next_file_is_read() {
    let no_files = |directory: &Path| {
        let pipe = directory.join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let endless = directory.join("endless");
        symlink("/dev/zero", &endless).unwrap();
        [pipe, endless]
    };
    let file = Limits::new(&limit("1/day"));
    let mut limits = file.open().await;
    for (no_file, number) in no_files(file.directory()).into_iter().zip(2..) {
        let opened = ConfigFile::new(&no_file).open();
        let refused = timeout(GENEROUS, opened).await.unwrap().unwrap_err();
        assert!(
            matches!(&refused, OpenError::File(error) if error.io_error().is_some()),
            "{refused}"
        );

        fs::rename(&no_file, file.path()).unwrap();
        let refused = limits.outcome().await.unwrap_err();
        let start = format!("{}: the file cannot be read", file.path().display());
        assert!(refused.starts_with(&start), "{refused}");
        assert_eq!(limits.remaining("client").await, number - 1);

        file.replace(&limit(&format!("{number}/day")));
        limits.reloaded().await;
        assert_eq!(limits.remaining("client").await, number);
    }
}
