//! When jobs are due: at a time, every so often, or as a cron expression with a time zone says.
//!
//! Times are milliseconds since 1970 and come in as arguments: nothing here reads a clock, a file, or the zone of the machine.

mod cron;
mod day;
mod error;
mod field;
mod schedule;
mod time;

pub use cron::CronExpression;
pub use day::{ActiveHours, DayBoundary};
pub use error::ScheduleError;
pub use field::{Field, FieldProblem};
pub use schedule::{INTERVAL_LEAST, INTERVAL_MOST, JITTER_MOST, Recurrence, Schedule};
pub use time::{parse_span, parse_time, spell_span};
