//! What to measure, from the command line.

use std::time::Duration;

use crate::measures::Measure;
use crate::round::Effort;

pub const USAGE: &str = "\
usage: comparison [--quick] [--long] [--only NAME]... [--list]

--quick      less than a minute, for a first look: short turns; the full run takes a few minutes
--long       also what takes long and gigabytes: 10 million keys
--only NAME  this measurement alone; several times: these
--list       names the measurements

Tables go to the standard output, in Markdown; how it goes, with figures that hold for this machine
only, to the standard error. With REDIS_CELL=<file> the module of redis-cell takes part: see the
script `redis-cell` beside this crate.";

#[derive(Default)]
pub struct Arguments {
    is_quick: bool,
    is_long: bool,
    pub lists: bool,
    only: Vec<String>,
}

impl Arguments {
    pub fn read(
        said: impl IntoIterator<Item = String>,
        measures: &[Measure],
    ) -> Result<Self, String> {
        let mut arguments = Self::default();
        let mut said = said.into_iter();
        while let Some(argument) = said.next() {
            match argument.as_str() {
                "--quick" => arguments.is_quick = true,
                "--long" => arguments.is_long = true,
                "--list" => arguments.lists = true,
                "--only" => {
                    let name = said.next().unwrap_or_default();
                    if !measures.iter().any(|measure| measure.name == name) {
                        return Err(format!(
                            "there is no measurement named {name:?}: see --list"
                        ));
                    }
                    arguments.only.push(name);
                }
                unknown => return Err(format!("unknown argument {unknown:?}\n\n{USAGE}")),
            }
        }
        Ok(arguments)
    }

    pub fn select(&self, measure: &Measure) -> bool {
        match self.only.as_slice() {
            [] => self.is_long || !measure.is_long,
            only => only.iter().any(|name| name == measure.name),
        }
    }

    pub fn effort(&self) -> Effort {
        if self.is_quick {
            Effort {
                rounds: 3,
                lasting: Duration::from_millis(40),
                keys: 10_000,
            }
        } else {
            Effort {
                rounds: 7,
                lasting: Duration::from_millis(300),
                keys: 10_000,
            }
        }
    }
}
