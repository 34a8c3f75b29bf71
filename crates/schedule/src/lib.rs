//! When jobs are due: at a time, every so often, or as a cron expression with a time zone says.
