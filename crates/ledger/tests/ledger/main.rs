//! The ledger from outside: files in, files damaged, files out. One binary.

mod damage;
mod full_disk;
mod listing;
mod past;
mod reopen;
mod story;
