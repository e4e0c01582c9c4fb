//! One cluster on its own: the controller in this process, with the rights that `deploy/` ships, on a real API server.

mod changes;
mod order;
mod requests;
mod stops;
mod waiting;
