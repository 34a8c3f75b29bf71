//! Files of agents on a disk: set up, examined, taken out.

#[cfg(test)]
mod files;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod user;
