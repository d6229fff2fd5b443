//! The PCI bus as firmware left it: functions found once, at start; BARs read, never moved.
//!
//! | module | what it owns |
//! |---|---|
//! | [`config`] | configuration space, through memory or through ports |
//! | [`bus`] | the walk over buses, bridges and functions |
//! | [`bar`] | what a BAR says about itself |
//! | [`function`] | [`Function`], a function as a driver sees it |
//! | [`window`] | [`Window`], a mapped BAR |

pub mod bar;
pub mod bus;
pub mod config;
pub mod function;
pub mod window;

pub use function::Function;
pub use window::Window;
