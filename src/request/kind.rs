//! `KeyKind`: what an extractor makes its keys of, for people and for the forms of operators.

use std::fmt;

use crate::one_line::OneLine;

/// What an extractor makes its keys of, as far as it can tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyKind {
    /// The same key for all requests.
    Everybody,
    /// The client's address: [`Key::address`](crate::Key::address), or
    /// [`Key::unattributed`](crate::Key::unattributed).
    Address,
    /// The value of the header of this name: [`Key::header`](crate::Key::header).
    Header(String),
    /// The host that the request is for, as text.
    Host,
    /// An authenticated user: [`Key::user`](crate::Key::user).
    User,
    /// Several keys together: [`Key::all`](crate::Key::all).
    All(Vec<Self>),
    /// Something of the application's own. The default.
    #[default]
    Other,
}

/// In words: `client address and header x-user`.
impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("everybody"),
            Self::Address => f.write_str("client address"),
            Self::Header(name) => write!(f, "header {}", OneLine(name)),
            Self::Host => f.write_str("host"),
            Self::User => f.write_str("user"),
            Self::All(parts) => parts.iter().enumerate().try_for_each(|(position, part)| {
                f.write_str(if position > 0 { " and " } else { "" })?;
                part.fmt(f)
            }),
            Self::Other => f.write_str("a key of the application's own"),
        }
    }
}
