//! The lines `post …` and `queue …` of the control line (specification 06 §14.7).

use super::burst::{Burst, Content, Pace, PhaseRule};
use super::{NotificationBlock, QUEUE_COUNT, QueueState, TAIL, register};
use crate::faults::{parse_duration, parse_number};
use crate::function::Function;

/// What a posted notification says unless told otherwise: the end of an instruction, for everybody.
const SUBTYPE_END: u64 = 3;

/// The options of a `post` line.
struct Order {
    count: u64,
    share: u64,
    every_ns: Option<u64>,
    content: Content,
    rule: PhaseRule,
}

impl Function {
    /// `post BLOCK QUEUE [options]`: BLOCK is `ncN`, `topspN`, `engineN` or `ncN.eM`.
    pub(crate) fn control_post(&mut self, words: &[&str]) -> Result<String, String> {
        let (start, queue, options) = self.place(words)?;
        let order = Order::parse(options)?;
        let burst = Burst::new(order.content, order.rule, order.count);
        match order.every_ns {
            None => self.post_all(start, queue, burst),
            Some(every_ns) => {
                let share = order.share;
                self.start_posting(Pace { start, queue, burst, share, every_ns });
            }
        }
        Ok(words_of(&self.describe(start, queue)))
    }

    /// `queue BLOCK QUEUE`
    pub(crate) fn control_queue(&mut self, words: &[&str]) -> Result<String, String> {
        let (start, queue, rest) = self.place(words)?;
        match rest {
            [] => Ok(words_of(&self.describe(start, queue))),
            [word, ..] => Err(format!("{word:?} is one word too many")),
        }
    }

    /// `tail BLOCK QUEUE VALUE`: the producer pointer reads this until the next record.
    pub(crate) fn control_tail(&mut self, words: &[&str], value: u64) -> Result<String, String> {
        let (start, queue, _) = self.place(words)?;
        let value = u32::try_from(value).map_err(|_| format!("{value:#x} is no word"))?;
        self.store(start, register(queue, TAIL), value);
        Ok(words_of(&self.describe(start, queue)))
    }

    fn place<'w>(&self, words: &'w [&'w str]) -> Result<(u64, u8, &'w [&'w str]), String> {
        let [block, queue, rest @ ..] = words else {
            return Err("which queue? BLOCK QUEUE, for example nc0 4".to_owned());
        };
        let start = parse_block(block).and_then(|block| self.notific_start(block));
        let start = start.ok_or_else(|| format!("there is no block {block:?}"))?;
        let number = parse_number(queue).and_then(|number| u8::try_from(number).ok());
        let number = number.filter(|number| *number < QUEUE_COUNT);
        Ok((start, number.ok_or_else(|| format!("there is no queue {queue:?}"))?, rest))
    }
}

fn parse_block(text: &str) -> Option<NotificationBlock> {
    let number = |text: &str| text.parse::<u16>().ok();
    let byte = |text: &str| text.parse::<u8>().ok();
    if let Some(t) = text.strip_prefix("topsp") {
        return byte(t).map(NotificationBlock::TopSp);
    }
    if let Some(engine) = text.strip_prefix("engine") {
        return number(engine).map(NotificationBlock::Engine);
    }
    match text.strip_prefix("nc")?.split_once(".e") {
        None => byte(text.strip_prefix("nc")?).map(NotificationBlock::Core),
        Some((core, engine)) => {
            let (core, engine) = (number(core)?, number(engine).filter(|engine| *engine < 16)?);
            core.checked_mul(16).map(|first| NotificationBlock::Engine(first + engine))
        }
    }
}

impl Order {
    fn parse(words: &[&str]) -> Result<Order, String> {
        let mut order = Order {
            count: 1,
            share: 1,
            every_ns: None,
            content: Content::Raw([0; 4]),
            rule: PhaseRule::Right,
        };
        let (mut line, mut hint, mut tag, mut custom) = (0, 1, 0, 0);
        let (mut subtype, mut sequence, mut content) = (SUBTYPE_END, None, None);
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("{word:?} is no option"))?;
            let number = || parse_number(value).ok_or_else(|| format!("{value:?} is no number"));
            let below = |limit: u64| match number()? {
                number if number < limit => Ok(number),
                number => Err(format!("{key} {number} is not below {limit}")),
            };
            match key {
                // Without `every=` all of them are written before the answer.
                "count" => order.count = below(1 << 24)?,
                "burst" => order.share = number()?.max(1),
                "every" => {
                    let span = parse_duration(value).filter(|span| *span > 0);
                    order.every_ns = Some(span.ok_or_else(|| format!("{value:?} is no time"))?);
                }
                "line" => line = below(1 << 16)?,
                "hint" => hint = below(16)?,
                "tag" => tag = below(32)?,
                "custom" => custom = below(1 << 16)?,
                "subtype" => subtype = below(1 << 16)?,
                "sequence" => sequence = Some(number()?),
                "raw" => content = Some(Content::Raw(parse_raw(value)?)),
                "noise" => content = Some(Content::Noise { seed: number()? }),
                "phase" => {
                    order.rule = match value {
                        "right" => PhaseRule::Right,
                        "wrong" => PhaseRule::Wrong,
                        "as-is" => PhaseRule::AsIs,
                        _ => return Err("phase is right, wrong or as-is".to_owned()),
                    }
                }
                _ => return Err(format!("no option is called {key:?}")),
            }
        }
        order.content = content.unwrap_or(Content::Fields {
            first: (line | hint << 20 | tag << 24) as u32,
            second: (custom | subtype << 16) as u32,
            sequence,
        });
        Ok(order)
    }
}

/// 32 hex digits, byte 0 first.
fn parse_raw(text: &str) -> Result<[u32; 4], String> {
    let wrong = || format!("{text:?} is not 32 hex digits");
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut words = [0; 4];
    for (word, digits) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *word = u32::from_str_radix(digits, 16).map_err(|_| wrong())?.swap_bytes();
    }
    Ok(words)
}

fn words_of(state: &QueueState) -> String {
    format!(
        "base={:#x} size={} head={} tail={} phase={} armed={} posted={} written={} stalled={} \
         dropped={} unarmed={} nowhere={}",
        state.base,
        state.size,
        state.head,
        state.tail,
        u8::from(state.phase),
        state.armed,
        state.posted,
        state.written,
        state.stalled,
        state.dropped,
        state.unarmed,
        state.nowhere,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_can_be_written_at_once_is_refused() {
        assert!(Order::parse(&["count=16777215"]).is_ok());
        for count in ["count=16777216", "count=18446744073709551615"] {
            assert!(Order::parse(&[count]).is_err_and(|said| said.contains("is not below")));
        }
    }

    #[test]
    fn blocks_have_names() {
        use NotificationBlock::{Core, Engine, TopSp};
        for (text, block) in [
            ("nc1", Some(Core(1))),
            ("topsp15", Some(TopSp(15))),
            ("engine130", Some(Engine(130))),
            ("nc5.e3", Some(Engine(83))),
            ("nc5.e16", None),
            ("nc", None),
            ("nc-1", None),
            ("core1", None),
            ("nc9999.e1", None),
        ] {
            assert_eq!(parse_block(text), block, "{text}");
        }
    }

    #[test]
    fn raw_bytes_are_little_endian() {
        let words = parse_raw("0102030405060708090a0b0c0d0e0f10").unwrap();
        assert_eq!(words, [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d]);
        for wrong in ["", "01", "zz02030405060708090a0b0c0d0e0f10"] {
            assert!(parse_raw(wrong).is_err());
        }
    }
}
