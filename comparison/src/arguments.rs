//! What to measure, from the command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::measures::Measure;
use crate::round::Effort;

pub const USAGE: &str = "\
usage: comparison [--quick] [--long] [--only NAME]... [--each-way MS] [--beside PROGRAM] [--list]

--quick           about a minute, for a first look: short turns; the full run takes some ten minutes
--long            also what takes long and gigabytes: 10 million keys
--only NAME       this measurement alone; several times: these
--list            names the measurements
--each-way MS     behind a network, this delay alone, in milliseconds
--beside PROGRAM  in turns with another build of this program, both figures in each row: see the
                  script `side-by-side` beside this crate

Tables go to the standard output, in Markdown; how it goes, with figures that hold for this machine
only, to the standard error. With REDIS_CELL=<file> the module of redis-cell takes part: see the
script `redis-cell` beside this crate.";

#[derive(Default)]
pub struct Arguments {
    is_quick: bool,
    is_long: bool,
    pub lists: bool,
    only: Vec<String>,
    each_way: Option<Duration>,
    /// Another build of this program, which takes turns with this one.
    pub beside: Option<PathBuf>,
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
                "--each-way" => {
                    let milliseconds = said.next().and_then(|said| said.parse().ok());
                    let each_way = milliseconds.map(|ms: f64| ms / 1e3);
                    let each_way = each_way.and_then(|s| Duration::try_from_secs_f64(s).ok());
                    arguments.each_way = Some(each_way.ok_or("--each-way takes milliseconds")?);
                }
                "--beside" => {
                    let program = said.next().ok_or("--beside takes a program")?;
                    arguments.beside = Some(program.into());
                }
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

    /// For another build of this program, which measures this with the same effort.
    pub fn of_one(&self, measure: &Measure) -> Vec<String> {
        let mut arguments = vec!["--only".to_owned(), measure.name.to_owned()];
        if self.is_quick {
            arguments.push("--quick".to_owned());
        }
        if let Some(each_way) = self.each_way {
            let milliseconds = each_way.as_secs_f64() * 1e3;
            arguments.extend(["--each-way".to_owned(), milliseconds.to_string()]);
        }
        arguments
    }

    pub fn effort(&self) -> Effort {
        let each_way = self.each_way;
        if self.is_quick {
            Effort {
                rounds: 3,
                lasting: Duration::from_millis(40),
                keys: 10_000,
                each_way,
            }
        } else {
            Effort {
                rounds: 7,
                lasting: Duration::from_millis(300),
                keys: 10_000,
                each_way,
            }
        }
    }
}
