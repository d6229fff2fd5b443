//! The gates of every command, as data (specification 05 §8): who may issue it, on which lane, with
//! which right, and what it does while a device or core is in reset.
//!
//! A gate hangs on the command *number*: every width and version of an operation shares one rule,
//! so that no form can slip past a test that its siblings must pass. The order of tests is the
//! order of the calls here:
//!
//! | step | call | refusal |
//! |---|---|---|
//! | which command is this word | [`Form::find`] | EINVAL |
//! | lane, live attach, grant; before any argument is looked at | [`check`] | EINVAL, EACCES |
//! | ownership and core right, of what the arguments name | [`Rule::check_rights`] | EPERM |
//! | device and core state, for commands that touch hardware | [`Command::admit`] | EIO, park |
//!
//! The console, a C interface and the native calls all stand on the same rows: a native method is
//! there exactly where its receiver proves the gate.

mod catalogue;
mod error;
mod forms;
mod grants;
mod rights;
#[cfg(test)]
mod spec;
mod state;

pub use catalogue::{COMMANDS, Command};
pub use error::GateError;
pub use forms::{Direction, FORMS, Form, LinuxGate};
pub use grants::{Grant, Grants};
pub use rights::{CoreClaimed, Named};
pub use state::Admission;

/// The kind of handle that a command arrives on (specification 05 §1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Looks only: no open reference, no attach reference.
    Info,
    /// May attach and work.
    Normal,
}

/// What a command asks of the handle it arrives on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// "I": either lane, attach not consulted.
    Either,
    /// "N": normal lane, attach not consulted.
    Normal,
    /// "A": normal lane and live attach.
    Attached,
    /// Either lane; live attach where it is the normal one (`DRIVER_INFO_SET`).
    EitherAttachedIfNormal,
    /// Removed: no lane reaches it.
    Absent,
}

/// What must belong to the caller ("o" of the table).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// Nothing.
    Nothing,
    /// What the command names; its destination where it names two things.
    Named,
    /// What the command names, but only where the call writes to it.
    Written,
}

/// One row of the table of gates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Lane and attach.
    pub gate: Gate,
    /// What must belong to the caller.
    pub ownership: Ownership,
    /// A core that is written into must be claimed ("c").
    pub core_right: bool,
    /// Needs this grant besides.
    pub grant: Option<Grant>,
    /// Touches hardware ("H"): parked while the device or its core is in reset.
    pub hardware: bool,
}

/// Who issues a command, as far as the gates care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Handle kind.
    pub lane: Lane,
    /// The handle holds a live attach reference: not closing, closed or revoked.
    pub attached: bool,
    /// What the machine's configuration lets this client do.
    pub grants: Grants,
}

/// Gates 1 and 2 of specification 05 §8.1, and the grant: evaluated once, before arguments.
///
/// # Errors
/// EINVAL for a command that the lane does not have, EACCES for a missing attach or grant.
pub fn check(command: Command, caller: &Caller) -> Result<(), GateError> {
    let rule = command.rule();
    let needs_attach = match (rule.gate, caller.lane) {
        (Gate::Absent, _) | (Gate::Normal | Gate::Attached, Lane::Info) => {
            return Err(GateError::NotOnThisLane { command });
        }
        (Gate::Attached | Gate::EitherAttachedIfNormal, Lane::Normal) => true,
        (Gate::Either | Gate::EitherAttachedIfNormal, Lane::Info)
        | (Gate::Either | Gate::Normal, Lane::Normal) => false,
    };
    if needs_attach && !caller.attached {
        return Err(GateError::NotAttached { command });
    }
    match rule.grant {
        Some(grant) => caller.grants.check(grant),
        None => Ok(()),
    }
}

impl Rule {
    const fn new(gate: Gate) -> Self {
        Rule {
            gate,
            ownership: Ownership::Nothing,
            core_right: false,
            grant: None,
            hardware: false,
        }
    }

    const fn owner(mut self) -> Self {
        self.ownership = Ownership::Named;
        self
    }

    const fn owner_if_written(mut self) -> Self {
        self.ownership = Ownership::Written;
        self
    }

    const fn core(mut self) -> Self {
        self.core_right = true;
        self
    }

    const fn needs(mut self, grant: Grant) -> Self {
        self.grant = Some(grant);
        self
    }

    const fn hardware(mut self) -> Self {
        self.hardware = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(lane: Lane, attached: bool) -> Caller {
        Caller { lane, attached, grants: Grants::ALL }
    }

    #[test]
    fn st_d17_every_command_on_every_lane_in_every_state() {
        for row in spec::gate_rows() {
            let Some(command) = row.command() else { continue };
            for lane in [Lane::Info, Lane::Normal] {
                for attached in [false, true] {
                    let expected = row.expected(lane, attached);
                    let seen = check(command, &caller(lane, attached)).err().map(|e| e.errno());
                    assert_eq!(seen, expected, "{} on {lane:?}, attached {attached}", row.text);
                }
            }
        }
    }

    #[test]
    fn the_table_is_the_one_of_the_specification() {
        let rows = spec::gate_rows();
        for row in &rows {
            let Some(command) = row.command() else { panic!("not in the catalogue: {}", row.text) };
            assert_eq!(command.rule().gate, row.gate(), "{}", row.text);
            assert_eq!(command.rule().ownership, row.ownership(), "{}", row.text);
            assert_eq!(command.rule().core_right, row.core_right(), "{}", row.text);
            assert_eq!(command.rule().grant, row.grant(), "{}", row.text);
            assert_eq!(command.rule().hardware, row.hardware, "{}", row.text);
        }
        for command in COMMANDS {
            let count = rows.iter().filter(|row| row.command() == Some(*command)).count();
            assert_eq!(count, 1, "{command} has one row");
        }
    }

    #[test]
    fn st_d16_no_form_of_a_gated_number_escapes() {
        for form in FORMS.iter().filter(|form| form.command.rule().gate == Gate::Attached) {
            let found = Form::find(form.word).unwrap();
            let refused = check(found.command, &caller(Lane::Normal, false)).unwrap_err();
            assert_eq!(refused.errno(), axon_platform::Errno::EACCES, "{}", form.name);
        }
    }

    #[test]
    fn st_e12_wide_and_batch_forms_on_a_revoked_handle_are_refused_like_their_siblings() {
        let pairs = [
            ("MEM_COPY64", "MEM_COPY"),
            ("MEM_ALLOC_V2MT64", "MEM_ALLOC"),
            ("DMA_QUEUE_INIT_BATCH", "DMA_QUEUE_INIT"),
        ];
        for (wide, narrow) in pairs {
            let refused = [wide, narrow].map(|name| {
                let form = Form::named(name).unwrap();
                check(form.command, &caller(Lane::Normal, false)).unwrap_err().errno()
            });
            assert_eq!(refused, [axon_platform::Errno::EACCES; 2], "{wide}");
        }
    }

    #[test]
    fn st_e13_an_allocation_does_not_exist_on_the_info_lane() {
        let command = Form::named("MEM_ALLOC").unwrap().command;
        let refused = check(command, &caller(Lane::Info, false)).unwrap_err();
        assert_eq!(refused.errno(), axon_platform::Errno::EINVAL);
    }

    #[test]
    fn st_d51_pod_control_needs_a_grant_on_either_lane() {
        let command = Form::named("POD_CTRL_V2").unwrap().command;
        for lane in [Lane::Info, Lane::Normal] {
            let grants = Grants::DEVICE;
            let refused = check(command, &Caller { lane, attached: true, grants }).unwrap_err();
            assert_eq!(refused.errno(), axon_platform::Errno::EACCES);
            assert_eq!(check(command, &caller(lane, false)), Ok(()));
        }
    }
}
