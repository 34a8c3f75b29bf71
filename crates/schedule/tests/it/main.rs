//! Schedules against clocks of real zones, and against a count of every minute.

#[cfg(test)]
mod brute_force;
#[cfg(test)]
mod vectors;
