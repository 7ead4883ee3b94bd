//! Commands that work on this machine itself, with the server's rooms in this process.

pub mod agent;
pub mod attend;
pub mod bench;
pub mod container;
pub mod doctor;
pub mod launch;
pub mod sim;
pub mod up;
pub mod verify;
