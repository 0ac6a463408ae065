//! `Input`: the lines of files, compressed or not, and of standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::PathBuf;

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

/// A longer line is none of a log, and is not kept in memory.
const LONGEST_LINE: u64 = 1 << 20;

const BUFFER: usize = 1 << 16;

/// The bar is drawn on standard error, if that is a terminal.
pub(crate) fn progress(files: &[PathBuf]) -> ProgressBar {
    let lengths = files
        .iter()
        .map(|file| file.metadata().map(|file| file.len()));
    let total = lengths.sum::<io::Result<u64>>().ok();
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{wide_bar} {bytes} of {total_bytes}, {eta} left",
        ),
        None => (ProgressBar::no_length(), "{bytes} read"),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the template is valid"))
}

/// One file, or standard input.
pub(crate) struct Input {
    pub(crate) name: String,
    /// The number of the line that was read last.
    pub(crate) line: u64,
    text: Vec<u8>,
    reader: Box<dyn BufRead>,
}

/// What [`Input::next`] has read.
pub(crate) enum Next<'a> {
    Line(&'a [u8]),
    TooLong,
    End,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    ///
    /// Names the file.
    pub(crate) fn open(file: &PathBuf, progress: &ProgressBar) -> Result<Self, String> {
        let (name, source): (_, Box<dyn Read>) = match file.to_str() {
            Some("-") => ("standard input".to_owned(), Box::new(io::stdin())),
            _ => {
                let name = file.display().to_string();
                let opened = File::open(file).map_err(|error| format!("{name}: {error}"))?;
                (name, Box::new(opened))
            }
        };
        let source = BufReader::with_capacity(BUFFER, progress.wrap_read(source));
        let reader = decompressed(source).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self {
            name,
            line: 0,
            text: Vec::new(),
            reader,
        })
    }

    /// Reads the next line.
    ///
    /// # Errors
    ///
    /// When the file cannot be read any further.
    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        self.text.clear();
        self.line += 1;
        let mut limited = self.reader.by_ref().take(LONGEST_LINE);
        let length = limited.read_until(b'\n', &mut self.text)?;
        match self.text.last() {
            None => Ok(Next::End),
            Some(last) if *last != b'\n' && length as u64 == LONGEST_LINE => {
                self.reader.skip_until(b'\n').map(|_| Next::TooLong)
            }
            Some(_) => Ok(Next::Line(&self.text)),
        }
    }
}

/// By the first two bytes, so that standard input may be compressed, too.
fn decompressed(mut source: impl BufRead + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut first = Vec::new();
    source.by_ref().take(2).read_to_end(&mut first)?;
    let is_compressed = first == [0x1f, 0x8b];
    let whole = Cursor::new(first).chain(source);
    Ok(match is_compressed {
        // As rotated logs that were joined, it may have several parts.
        true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(whole))),
        false => Box::new(whole),
    })
}
