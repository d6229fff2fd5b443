//! All commands, by area.

mod bus;
mod client;
mod cores;
mod data;
mod machine;
mod memory;
mod notify;
mod pod;
mod queue;
mod reset;
mod sync;
mod telemetry;
mod window;

use axon_platform::{Errno, Platform};

use crate::answer::{Failure, Fields, Outcome};
use crate::session::Session;
use crate::words::Words;

/// One line of `help`.
struct Usage {
    area: &'static str,
    form: &'static str,
}

const fn usage(area: &'static str, form: &'static str) -> Usage {
    Usage { area, form }
}

/// Everything this build carries out. The first word of a form is the command's name.
const COMMANDS: &[Usage] = &[
    usage("bus", "devices"),
    usage("bus", "info [DEV]"),
    usage("bus", "bars [DEV]"),
    usage("bus", "topology [DEV|all]"),
    usage("bus", "read32 [DEV] bar0+OFF"),
    usage("bus", "write32 [DEV] bar0+OFF VALUE"),
    usage("client", "open [DEV] [lane=info]"),
    usage("client", "close CLIENT"),
    usage("client", "use CLIENT"),
    usage("client", "clients [DEV]"),
    usage("memory", "alloc device|host SIZE [align= channel= region= nc= life= type=]"),
    usage("memory", "free H"),
    usage("memory", "retain H"),
    usage("memory", "lookup H"),
    usage("memory", "pa H"),
    usage("memory", "search PA"),
    usage("memory", "within PA LEN"),
    usage("memory", "find PA"),
    usage("memory", "program NC ADDRESS HEX"),
    usage("memory", "mem [DEV]"),
    usage("memory", "chunks [DEV] [channel= limit=]"),
    usage("memory", "handles [DEV]"),
    usage("windows", "window map PA SIZE"),
    usage("windows", "window block core|topsp|hbm N semaphores|all|sbuf|memory"),
    usage("windows", "window table [DEV]"),
    usage("windows", "window state W"),
    usage("windows", "window read W OFF LEN"),
    usage("windows", "window write W OFF HEX"),
    usage("windows", "window unmap W [SIZE]"),
    usage("windows", "place ADDRESS"),
    usage("windows", "export ADDRESS SIZE"),
    usage("windows", "export attach|map|unmap|detach|state|close E"),
    usage("windows", "peer ADDRESS SIZE"),
    usage("windows", "peer state|close N"),
    usage("windows", "hold ADDRESS LEN"),
    usage("windows", "hold release N"),
    usage("data", "fill H BYTE [off= len=]"),
    usage("data", "pattern H SEED"),
    usage("data", "write H OFF HEX [via=auto|window|dma]"),
    usage("data", "read H OFF LEN"),
    usage("data", "crc H [off= len=]"),
    usage("data", "copy SRC DST LEN [soff= doff= async=1]"),
    usage("data", "copy gather DST DOFF SRC SOFF LEN [SRC SOFF LEN …] [async=1]"),
    usage("data", "copy scatter SRC SOFF DST DOFF LEN [DST DOFF LEN …] [async=1]"),
    usage("data", "batch SRC DST LEN COUNT [soff= doff= sstep= dstep=]"),
    usage("data", "memset H BYTE LEN [off=]"),
    usage("data", "wait W"),
    usage("data", "scrub HBM WORD [async=1]"),
    usage("data", "scrub wait|drop S"),
    usage("queues", "queue init E Q tx=H|hw rx=H|hw [count= txcount= rxcount= rxc=]"),
    usage("queues", "queue release|state E Q"),
    usage("queues", "queue start E Q TX RX"),
    usage("queues", "queue ack E Q COUNT"),
    usage("queues", "queue copy RING tx|rx SLOT ADDRESS LEN [id=]"),
    usage("queues", "queue write RING tx|rx OFFSET HEX"),
    usage("queues", "queue read E Q tx|rx START COUNT"),
    usage("queues", "engine init E"),
    usage("queues", "engine state [DEV] E"),
    usage("queues", "engine set E disable|normal|abort"),
    usage("queues", "h2t alloc NC COPY [SERVICE]"),
    usage("queues", "h2t free NC MAP"),
    usage("queues", "zcopy in|out HBM HOST LEN [doff= hoff= queue=]"),
    usage("reset", "reset [nc=MAP]"),
    usage("reset", "reset wait R"),
    usage("reset", "state [DEV]"),
    usage("telemetry", "tasks [on|off]"),
    usage("telemetry", "metrics [PREFIX]"),
    usage("telemetry", "tree [DEV] [path=PREFIX]"),
    usage("telemetry", "counters [DEV] [client=]"),
    usage("telemetry", "count NC|device COUNTER VALUE"),
    usage("telemetry", "datastore acquire|release"),
    usage("telemetry", "hwcounters ADDRESS|bar0+OFF [count= step=] [dev=]"),
    usage("telemetry", "log [LIMIT] [CLIENT] [dev=]"),
    usage("telemetry", "trace on|off EVENT|all [dev=]"),
    usage("telemetry", "trace [LIMIT] [dev=]"),
    usage("telemetry", "poster on|off|now|status [DEV]"),
    usage("telemetry", "poster period SPAN [DEV]"),
    usage("cores", "nc init|done NC"),
    usage("cores", "nc state [DEV] NC"),
    usage("cores", "lock read|write NC [model=N]"),
    usage("cores", "unlock read|write NC [model=N]"),
    usage("cores", "reserve START COUNT [end=N]"),
    usage("cores", "unreserve CLAIM"),
    usage("pod", "pod status"),
    usage("pod", "pod ctrl elect|kill|single|mode [X4|X2H|X2V|X1] [timeout=SECONDS]"),
    usage("cores", "sem read NC N"),
    usage("cores", "sem write NC N V"),
    usage("cores", "sem inc|dec NC N [V]"),
    usage("cores", "sem wait NC N V [within=]"),
    usage("cores", "event read NC N"),
    usage("cores", "event write NC N V"),
    usage("cores", "event wait NC N [within=]"),
    usage(
        "notify",
        "nq init [nc=|topsp= index= type= size= place= channel= region= full= replace=1]",
    ),
    usage("notify", "nq next NQ [count= within=]"),
    usage("notify", "nq peek|drain|info|release NQ"),
    usage("notify", "nq resize NQ SIZE"),
    usage("notify", "nq totals [DEV]"),
    usage("notify", "post BLOCK QUEUE [count= sequence= every= burst= raw= noise= phase= …]"),
    usage("notify", "post state BLOCK QUEUE"),
    usage("faults", "fault NAME[=VALUE][@DEV] [after=N]"),
    usage("faults", "fault clear"),
    usage("script", "sleep SPAN"),
    usage("script", "advance SPAN"),
    usage("script", "expect ok|ERRNO [KEY=VALUE …] [COMMAND]"),
    usage("script", "$NAME = COMMAND"),
    usage("script", "help [COMMAND]"),
    usage("script", "quit"),
];

/// Carries out one command.
pub(crate) async fn run<P: Platform>(
    session: &mut Session<P>,
    words: &[&str],
    rows: &mut dyn FnMut(&Fields),
) -> Outcome {
    let Some((name, rest)) = words.split_first() else {
        return Err(Failure::invalid("there is no command"));
    };
    let mut words = Words::new(rest);
    let words = &mut words;
    match *name {
        "devices" => bus::devices(session, words, rows),
        "info" => bus::info(session, words),
        "bars" => bus::bars(session, words, rows),
        "topology" => bus::topology(session, words, rows),
        "read32" => bus::read32(session, words),
        "write32" => bus::write32(session, words),
        "open" => client::open(session, words).await,
        "close" => client::close(session, words).await,
        "use" => client::switch(session, words),
        "clients" => client::list(session, words, rows),
        "alloc" => memory::alloc(session, words).await,
        "free" => memory::free(session, words).await,
        "retain" => memory::retain(session, words).await,
        "lookup" => memory::lookup(session, words),
        "pa" => memory::address(session, words),
        "search" => memory::search(session, words).await,
        "within" => memory::within(session, words).await,
        "find" => memory::find(session, words).await,
        "program" => memory::program(session, words).await,
        "window" => window::window(session, words, rows).await,
        "place" => window::place(session, words).await,
        "export" => window::export(session, words).await,
        "peer" => window::peer(session, words).await,
        "hold" => window::hold(session, words).await,
        "mem" => memory::totals(session, words).await,
        "chunks" => memory::chunks(session, words, rows).await,
        "handles" => memory::handles(session, words, rows).await,
        "fill" => data::fill(session, words).await,
        "pattern" => data::pattern(session, words).await,
        "write" => data::write(session, words).await,
        "read" => data::read(session, words).await,
        "crc" => data::crc(session, words).await,
        "copy" => data::copy(session, words).await,
        "batch" => data::batch(session, words).await,
        "memset" => data::memset(session, words).await,
        "wait" => data::wait(session, words).await,
        "scrub" => data::scrub(session, words).await,
        "queue" => queue::queue(session, words, rows).await,
        "engine" => queue::engine(session, words),
        "h2t" => queue::h2t(session, words).await,
        "zcopy" => queue::zcopy(session, words).await,
        "reset" => reset::reset(session, words).await,
        "state" => reset::state(session, words),
        "metrics" => telemetry::metrics(session, words, rows).await,
        "tree" => telemetry::tree(session, words, rows).await,
        "counters" => telemetry::counters(session, words, rows).await,
        "count" => telemetry::count(session, words),
        "datastore" => telemetry::datastore(session, words),
        "hwcounters" => telemetry::hardware_counters(session, words, rows).await,
        "log" => telemetry::log(session, words, rows),
        "trace" => telemetry::trace(session, words, rows),
        "poster" => telemetry::poster(session, words, rows).await,
        "nc" => cores::nc(session, words).await,
        "lock" => cores::lock(session, words).await,
        "unlock" => cores::unlock(session, words).await,
        "reserve" => cores::reserve(session, words).await,
        "unreserve" => cores::unreserve(session, words),
        "pod" => pod::pod(session, words).await,
        "sem" => sync::sem(session, words).await,
        "event" => sync::event(session, words).await,
        "nq" => notify::nq(session, words, rows).await,
        "post" => notify::post(session, rest),
        "fault" => machine::fault(session, rest),
        "tasks" => machine::tasks(session, words, rows),
        "sleep" | "advance" => machine::sleep(session, words).await,
        "help" => help(words, rows),
        name => Err(Failure::new(
            Errno::EINVAL,
            format_args!("there is no command `{name}`; `help` lists them"),
        )),
    }
}

/// `help [COMMAND]`
fn help(words: &mut Words<'_>, rows: &mut dyn FnMut(&Fields)) -> Outcome {
    let only = words.peek().map(|_| words.word("command")).transpose()?;
    words.finish()?;
    let name = |usage: &Usage| usage.form.split(' ').next().unwrap_or_default();
    let shown = COMMANDS.iter().filter(|usage| only.is_none_or(|only| name(usage) == only));
    let mut count = 0u64;
    for usage in shown {
        rows(&Fields::new().with("area", usage.area).with("form", usage.form));
        count += 1;
    }
    match (count, only) {
        (0, Some(name)) => Err(Failure::invalid(format_args!("there is no command `{name}`"))),
        _ => Ok(Fields::new().with("commands", count)),
    }
}
