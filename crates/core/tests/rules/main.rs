//! The rules of the core in words, each with the smallest world that shows it: what may happen (`decide`), what has
//! happened (`apply`), what should happen next (`plan`). What holds in every world is in `properties`.

mod allowances;
mod backfill;
mod budgets;
mod clusters;
mod costs;
mod deadlines;
mod eviction;
mod exits;
mod families;
mod forecast;
mod funds;
mod jobs;
mod locations;
mod locks;
mod nested;
mod places;
mod placing;
mod queue;
mod quotas;
mod ranks;
mod reasons;
mod records;
mod reports;
mod retiring;
mod rolling;
mod room;
mod scaling;
mod schedules;
mod tiers;
mod waste;
mod windows;
mod world;
