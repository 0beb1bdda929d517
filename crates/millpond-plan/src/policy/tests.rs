//! The examples of the references, and that every plan is one that kube-scheduler would carry out.
