//! The speed of tower-throttle compared with others, as ratios within one run. docs/performance.md
//! says what is measured and why.

use std::env;
use std::process::ExitCode;

use arguments::Arguments;

mod arguments;
mod clock;
mod delaying_proxy;
mod load;
mod measures;
mod open_loop;
mod peers;
mod random;
mod redis_server;
mod round;
mod runtimes;
mod side_by_side;
mod table;
mod web;

fn main() -> ExitCode {
    let arguments = match Arguments::read(env::args().skip(1), &measures::ALL) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("comparison: {wrong}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.lists {
        for measure in &measures::ALL {
            println!("{:<12} {}", measure.name, measure.about);
        }
        return ExitCode::SUCCESS;
    }
    for measure in measures::ALL.iter().filter(|one| arguments.select(one)) {
        eprintln!("{}: {}", measure.name, measure.about);
        let table = match &arguments.beside {
            None => (measure.run)(arguments.effort()),
            Some(program) => side_by_side::run(program, &arguments.of_one(measure)),
        };
        println!("{table}");
    }
    ExitCode::SUCCESS
}
