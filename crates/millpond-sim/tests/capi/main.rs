//! Cluster API: the same stories against the stand-in on the embedded API, in virtual time, and against Cluster API's
//! own manager on a real API server. Where the two differ, the stand-in is wrong.

mod embedded;
mod pond;
mod real;
mod scene;
mod seeds;
mod stories;
mod tanzu;
mod verbs;
