//! `Arguments`: what the command line says.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::fields::Fields;

pub(crate) const USAGE: &str = "usage: replay --config <file> [--compare <file>] [--svg <file>] [--denied <file>] \
     [--field <what>=<name>]... [<log>]...";

#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// The file of the limits, and the one to compare it with.
    pub(crate) configs: Vec<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    /// Where to write the lines that the first file denies.
    pub(crate) denied: Option<PathBuf>,
    pub(crate) fields: Fields,
    /// `-` is standard input.
    pub(crate) logs: Vec<PathBuf>,
}

impl Arguments {
    /// # Errors
    ///
    /// Names the argument that is wrong.
    pub(crate) fn read(mut given: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut arguments = Self::default();
        let (mut config, mut compare) = (None, None);
        while let Some(argument) = given.next() {
            let place = match argument.to_str() {
                Some("--config") => &mut config,
                Some("--compare") => &mut compare,
                Some("--svg") => &mut arguments.svg,
                Some("--denied") => &mut arguments.denied,
                Some("--field") => {
                    let field = value(&argument, &mut given)?;
                    arguments.fields.set(&field.to_string_lossy())?;
                    continue;
                }
                Some(option) if option.starts_with("--") => {
                    return Err(format!("{option:?} is no option, {USAGE}"));
                }
                _ => {
                    arguments.logs.push(argument.into());
                    continue;
                }
            };
            *place = Some(value(&argument, &mut given)?.into());
        }
        let config = config.ok_or_else(|| format!("--config is missing, {USAGE}"))?;
        arguments.configs = [Some(config), compare].into_iter().flatten().collect();
        if arguments.logs.is_empty() {
            arguments.logs.push("-".into());
        }
        Ok(arguments)
    }
}

fn value(
    option: &OsString,
    given: &mut impl Iterator<Item = OsString>,
) -> Result<OsString, String> {
    let option = option.to_string_lossy();
    given
        .next()
        .ok_or_else(|| format!("{option} has no value, {USAGE}"))
}
