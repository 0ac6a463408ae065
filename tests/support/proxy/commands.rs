//! Splits what a client sends into commands.

/// Counts the commands in a stream: each is `*<words>`, then each word as `$<length>` and itself.
#[derive(Default)]
pub(super) struct Commands {
    line: Vec<u8>,
    /// How many bytes of a word, including the end of its line, are still to come.
    of_word: usize,
    words: usize,
}

impl Commands {
    /// How many commands these bytes complete.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut complete = 0;
        while !bytes.is_empty() {
            if self.of_word > 0 {
                let taken = self.of_word.min(bytes.len());
                self.of_word -= taken;
                bytes = &bytes[taken..];
                if self.of_word == 0 {
                    self.words -= 1;
                    complete += u64::from(self.words == 0);
                }
                continue;
            }
            let (byte, rest) = bytes.split_first().unwrap();
            bytes = rest;
            match byte {
                b'\n' => self.read_line(),
                b'\r' => {}
                byte => self.line.push(*byte),
            }
        }
        complete
    }

    fn read_line(&mut self) {
        let line = String::from_utf8(std::mem::take(&mut self.line)).unwrap();
        let number: usize = line[1..].parse().unwrap();
        match &line[..1] {
            "*" => self.words = number,
            "$" => self.of_word = number + 2,
            other => panic!("{other} begins no command"),
        }
    }
}
