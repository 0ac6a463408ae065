//! Stand-ins for programs: scripts that print what they are asked to do.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// A directory of stand-ins.
pub struct Programs {
    directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// A program cannot be run while a process has it open for writing, and every process started by
/// another thread meanwhile has it open for a moment.
static ALONE: Mutex<()> = Mutex::new(());

impl Programs {
    pub fn none() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, program: &str) -> PathBuf {
        self.directory.path().join(program)
    }

    pub fn has(&self, program: &str, does: &str) {
        fs::create_dir_all(self.path(program).parent().unwrap()).unwrap();
        fs::write(self.path(program), format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(self.path(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// What a program has written to its standard output and standard error.
pub fn printed(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}
