//! The gates of every native call (specification 05 §6, §8): each call of the table in
//! [`axon::calls`] in every state of client, core and device, and rights of single clients.

mod grants;
mod scene;
mod source;
mod states;
