//! The control line: how a test or the launcher reaches into a running function.

use crate::faults::parse_number;
use crate::function::Function;

const HELP: &str = "commands: fault NAME[=VALUE] [after=N] [times=N] | fault clear | seed N | \
                    trace doorbells|descriptors|registers|all on|off | trace clear | \
                    poke OFFSET VALUE (MiscRAM) | stick OFFSET VALUE|off (MiscRAM) | \
                    peek OFFSET (register window) | \
                    post BLOCK QUEUE [count= sequence= every= burst= subtype= custom= tag= hint= \
                    line= raw= noise= phase=] | queue BLOCK QUEUE | tail BLOCK QUEUE VALUE | \
                    pe CORE OFFSET VALUE";

impl Function {
    /// Carries out one line; gives what it answers.
    ///
    /// # Errors
    /// A sentence that says what was wrong; nothing was done.
    pub fn control(&mut self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["fault", "clear"] => {
                self.faults.clear();
                Ok("no faults".to_owned())
            }
            ["seed", seed] => {
                let seed = parse_number(seed).ok_or_else(|| format!("{seed:?} is no number"))?;
                self.faults.seed(seed);
                Ok(format!("delays are those of seed {seed}"))
            }
            ["fault", fault @ ..] if !fault.is_empty() => {
                self.faults.arm_text(&fault.join(" ")).map_err(|error| error.to_string())?;
                Ok("armed".to_owned())
            }
            ["trace", "clear"] => {
                self.recorder.clear_traces();
                Ok("traces empty".to_owned())
            }
            ["trace", which, state @ ("on" | "off")] => self.switch_trace(which, *state == "on"),
            ["poke", offset, value] => {
                let (offset, value) = (word_offset(offset)?, word(value)?);
                self.misc.poke(offset, value);
                Ok(format!("MiscRAM {offset:#x} = {value:#x}"))
            }
            ["stick", offset, "off"] => {
                let offset = word_offset(offset)?;
                self.misc.stick(offset, None);
                Ok(format!("MiscRAM {offset:#x} is free"))
            }
            ["stick", offset, value] => {
                let (offset, value) = (word_offset(offset)?, word(value)?);
                self.misc.stick(offset, Some(value));
                Ok(format!("MiscRAM {offset:#x} is {value:#x} from now on"))
            }
            ["peek", offset] => {
                let offset = word_offset(offset)?;
                Ok(format!("{:#x}", self.read_word(offset)))
            }
            ["post", order @ ..] => self.control_post(order),
            ["queue", place @ ..] => self.control_queue(place),
            ["tail", place @ .., value] => self.control_tail(place, number(value)?),
            ["pe", core, offset, value] => {
                let core = u8::try_from(number(core)?).map_err(|_| format!("no core {core}"))?;
                self.set_pe_counter(core, number(offset)?, number(value)?)?;
                Ok(format!("core {core} counter {offset} = {value}"))
            }
            ["help"] => Ok(HELP.to_owned()),
            _ => Err(format!("no such command: {line:?}; {HELP}")),
        }
    }

    fn switch_trace(&mut self, which: &str, on: bool) -> Result<String, String> {
        self.recorder.traces.switch(which, on)?;
        Ok(format!("trace {which} {}", if on { "on" } else { "off" }))
    }
}

fn number(text: &str) -> Result<u64, String> {
    parse_number(text).ok_or_else(|| format!("{text:?} is no number"))
}

fn word(text: &str) -> Result<u32, String> {
    let value = number(text)?;
    u32::try_from(value).map_err(|_| format!("{value:#x} is no word"))
}

fn word_offset(text: &str) -> Result<u64, String> {
    let offset = number(text)?;
    if offset.is_multiple_of(4) { Ok(offset) } else { Err(format!("{offset:#x} is unaligned")) }
}
