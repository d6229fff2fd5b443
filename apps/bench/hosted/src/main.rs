//! bench in a Linux process.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    axon_hosted::run(axon_bench::main)
}
