//! The engine from outside: events in, rendered decisions out.

mod admission;
mod bad_input;
mod bad_objects;
mod explain;
mod fair;
mod fair_admission;
mod flavors;
mod gates;
mod parking;
mod preemption;
mod queues;
mod slices;
mod status;
mod topology;
mod variants;
