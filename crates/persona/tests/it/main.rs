//! The prompt of a personal agent.

#[cfg(test)]
mod rendered;
