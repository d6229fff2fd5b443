//! bringup in a Linux process, against the in-process model and virtual time.

fn main() -> std::process::ExitCode {
    axon_hosted::run(|machine| axon::run(machine, axon_bringup::main))
}
