//! Enums whose variants have a label each, for metrics, logs and files.

/// Defines a label for each variant of a fieldless enum, and the list of all variants. A variant
/// that is missing or out of order does not compile.
macro_rules! labels {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// All variants. Later versions may add more.
            pub const ALL: &'static [Self] = &Self::EACH;

            /// The same as an array, to index arrays by `variant as usize`.
            pub(crate) const EACH: [Self; [$($word),+].len()] = {
                let each = [$(Self::$variant),+];
                let mut place = 0;
                while place < each.len() {
                    assert!(each[place] as usize == place);
                    place += 1;
                }
                each
            };

            $(#[$about])*
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }
    };
}
pub(crate) use labels;

/// `Display` that shows the label.
macro_rules! shown_as_labels {
    ($($name:ident)+) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}
pub(crate) use shown_as_labels;
