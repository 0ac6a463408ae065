//! `Probe`: the commands that find out whether a server answers. Both are about a key of the store's
//! own, as questions are: a proxy that finds the server by the key refuses a command without one, or
//! hangs up on it.

use std::sync::{Mutex, PoisonError};

use redis::Cmd;

use crate::store::redis::keys::Prefix;

pub(super) struct Probe {
    prefix: Prefix,
    /// The tag of the key, which decides where in a cluster it is.
    tag: Mutex<String>,
}

impl Probe {
    pub(super) fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            tag: Mutex::new("probe".to_owned()),
        }
    }

    /// From now on the key has this tag.
    pub(super) fn set_tag(&self, tag: String) {
        *self.tag.lock().unwrap_or_else(PoisonError::into_inner) = tag;
    }

    /// A script that does nothing: a server answers a PING even while it makes scripts wait.
    pub(super) fn script(&self) -> Cmd {
        let mut script = redis::cmd("EVAL");
        script.arg("return 1").arg(1).arg(self.key());
        script
    }

    /// The first command on a connection, which any server answers that lets its client in.
    pub(super) fn greeting(&self) -> Cmd {
        let mut read = redis::cmd("GET");
        read.arg(self.key());
        read
    }

    fn key(&self) -> String {
        let tag = self.tag.lock().unwrap_or_else(PoisonError::into_inner);
        self.prefix.own_key(&tag)
    }
}
